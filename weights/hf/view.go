package hf

import (
	"fmt"
	"path/filepath"
	"strings"

	"terrace/weights/gguf"
)

// Limits that no real model reaches; a config beyond them is refused before anything is sized by it.
const (
	maxLayers  = 1024
	maxWidth   = 1 << 20
	maxHeads   = 1 << 12
	maxHeadDim = 1 << 12
	maxVocab   = 1 << 24
	maxContext = 1 << 31
	maxExperts = 1 << 12
	maxTopK    = 1 << 24
)

// view is a folder being presented: what its config says, and the metadata and tensors built from it. It has a
// method for each thing that a family's checkpoints have, so that a family is a list of calls.
type view struct {
	dir     string
	cfg     fields
	files   *shards
	faults  *faults
	meta    *gguf.Meta
	tensors []*gguf.Tensor
	storage *storage // of a quantised checkpoint

	arch    string // GGUF architecture name
	prefix  string // what stands before the tensor names of this checkpoint
	layers  int
	spare   int // layers of the checkpoint behind these that are no part of the decoder (guesses of further tokens)
	hidden  int // D
	heads   int // H
	kvHeads int // G
	headDim int
	ffn     int
	vocab   int
	context int
}

// set stores a metadata key of the architecture: "block_count" → "llama.block_count".
func (v *view) set(key string, value any) { v.meta.Set(v.arch+"."+key, value) }

func (v *view) setInt(key string, n int)       { v.set(key, uint32(n)) }
func (v *view) setFloat(key string, x float64) { v.set(key, float32(x)) }

// setOurs stores a key that GGUF does not have: "rope.layout" → "terrace.rope.layout".
func (v *view) setOurs(key string, value any) { v.meta.Set("terrace."+key, value) }

// names of the config keys of the figures every decoder has; families differ in them.
type names struct {
	layers, hidden, heads, kvHeads, headDim, ffn, context, eps string
}

var usualNames = names{
	layers: "num_hidden_layers", hidden: "hidden_size", heads: "num_attention_heads", kvHeads: "num_key_value_heads",
	headDim: "head_dim", ffn: "intermediate_size", context: "max_position_embeddings", eps: "rms_norm_eps",
}

// defaults of the figures that a config may leave out; 0 = the key is required (kvHeads: = heads; headDim: hidden/heads).
// A null is no default: it means one key/value head a query head, and for a headDim that has a default it is refused.
type defaults struct {
	heads, kvHeads, headDim, vocab, context int
	eps                                     float64
	tied                                    bool
	numbers                                 bool // the class does not know null for kvHeads
}

// figures reads and publishes what every decoder has. It reports whether they are sound enough to go on.
func (v *view) figures(n names, d defaults) bool {
	c := v.cfg
	v.layers = c.int(n.layers, 1, maxLayers)
	v.hidden = c.int(n.hidden, 1, maxWidth)
	v.heads = c.intUnless(n.heads, d.heads, maxHeads)
	v.vocab = c.intUnless("vocab_size", d.vocab, maxVocab)
	v.context = c.intOr(n.context, d.context, 1, maxContext)
	if n.ffn != "" {
		v.ffn = c.int(n.ffn, 1, maxWidth)
	}
	v.kvHeads = v.heads
	if n.kvHeads != "" {
		def := d.kvHeads
		if def == 0 || c.null(n.kvHeads) { // absent is the class's default, null one key/value head a query head
			def = v.heads
		}
		v.kvHeads = c.intOr(n.kvHeads, def, 1, maxHeads)
		if d.numbers && c.null(n.kvHeads) {
			c.wrong(n.kvHeads, fmt.Sprintf("an integer from 1 to %d", maxHeads))
		}
	}
	if len(v.faults.list) > 0 {
		return false
	}
	if v.heads%v.kvHeads != 0 {
		v.faults.add("%s: %s %d is not a multiple of %s %d: %w", c.where, n.heads, v.heads, n.kvHeads, v.kvHeads, ErrConfig)
	}
	v.headDim = d.headDim
	if n.headDim != "" {
		v.headDim = c.intOr(n.headDim, d.headDim, 1, maxHeadDim)
		if d.headDim > 0 && c.null(n.headDim) { // the class has a number by default and computes with it
			c.wrong(n.headDim, fmt.Sprintf("an integer from 1 to %d", maxHeadDim))
		}
	}
	if v.headDim == 0 {
		if v.headDim = v.hidden / v.heads; v.hidden%v.heads != 0 {
			v.faults.add("%s: %s %d is not a multiple of %s %d: %w", c.where, n.hidden, v.hidden, n.heads, v.heads, ErrConfig)
		}
	}
	v.setInt("context_length", v.context)
	v.setInt("embedding_length", v.hidden)
	v.setInt("block_count", v.layers)
	v.setInt("attention.head_count", v.heads)
	v.setInt("attention.head_count_kv", v.kvHeads)
	v.setInt("attention.key_length", v.headDim)
	v.setInt("attention.value_length", v.headDim)
	v.setInt("vocab_size", v.vocab)
	if v.ffn > 0 {
		v.setInt("feed_forward_length", v.ffn)
	}
	if n.eps != "" {
		key := "attention.layer_norm_rms_epsilon"
		if n.eps == "layer_norm_epsilon" && v.arch == "gpt2" {
			key = "attention.layer_norm_epsilon"
		}
		v.setFloat(key, c.floatOr(n.eps, d.eps, 1e-20, 0.5))
	}
	v.setOurs("tie_word_embeddings", v.tied(d.tied))
	return len(v.faults.list) == 0
}

func (v *view) tied(def bool) bool { return v.cfg.boolOr("tie_word_embeddings", def) }

// activations maps the names of Hugging Face to ours.
var activations = map[string]string{
	"silu": "silu", "swish": "silu", "relu": "relu", "gelu": "gelu",
	"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
}

// activation reads the nonlinearity and publishes it where it is not the architecture's own.
func (v *view) activation(key, def string) {
	if act := v.cfg.choice(key, def, activations); act != activations[def] {
		v.setOurs("activation", act)
	}
}

// siluConvolution refuses an activation other than silu where the convolution of recurrent layers has it too.
func (v *view) siluConvolution() {
	act := v.cfg.choice("hidden_act", "silu", activations)
	v.refuseUnless(act == "silu", "hidden_act is %v: the convolution of recurrent layers is computed with silu alone", v.cfg.values["hidden_act"])
}

// slidingLayers publishes which layers have the sliding window: as a period where one says it (every period-th layer is
// global, as llama.cpp has it but for Laguna, whose first of each period is), else as a list of 1 (slides) and 0.
func (v *view) slidingLayers(sliding []bool) {
	period := len(sliding) + 1
	for i, s := range sliding {
		if !s {
			period = i + 1
			break
		}
	}
	periodic := period <= len(sliding) && v.arch != "laguna"
	list := make([]int32, len(sliding))
	for i, s := range sliding {
		if s {
			list[i] = 1
		}
		periodic = periodic && s == ((i+1)%period != 0)
	}
	if periodic {
		v.setInt("attention.sliding_window_pattern", period)
		return
	}
	v.set("attention.sliding_window_pattern", list)
}

// layerTypes reads the layer_types list ("sliding_attention" or "full_attention"); nil if absent.
func (v *view) layerTypes() []bool {
	list := v.cfg.list("layer_types", v.layers)
	if list == nil {
		return nil
	}
	sliding := make([]bool, len(list))
	for i, x := range list {
		switch x {
		case "sliding_attention":
			sliding[i] = true
		case "full_attention":
		default:
			v.faults.add("%s: layer_types[%d] is %v, want sliding_attention or full_attention: %w", v.cfg.where, i, x, ErrConfig)
			return nil
		}
	}
	return sliding
}

// window publishes a sliding window of all layers, where the config has one.
func (v *view) window(def int) {
	if v.cfg.null("sliding_window") {
		return // none
	}
	if w := v.cfg.intOr("sliding_window", def, 0, maxContext); w > 0 {
		v.setInt("attention.sliding_window", w)
	}
}

// name of the folder for general.name.
func folderName(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return strings.TrimSpace(filepath.Base(dir))
}

func layerName(i int) string { return fmt.Sprintf("blk.%d.", i) }
