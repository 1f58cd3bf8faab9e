package convert

import (
	"fmt"
	"slices"
	"strings"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// Spec is the shape of a model of random weights.
type Spec struct {
	Arch    string // one of SpecArchs
	Layers  int
	Hidden  int // width of the residual stream
	Heads   int
	KVHeads int
	HeadDim int
	FFN     int // inner width of the feed-forward network
	Vocab   int
	Context int // positions the model is said to be trained for
	Tied    bool
	Seed    uint64

	SpecExperts

	PerLayer, SharedKV int // of gemma4: numbers of a layer's input of each token, and how many last layers read an earlier layer's keys
}

// SpecExperts are experts of a layer, those of a token, and the inner width of one; 0 experts = none.
type SpecExperts struct{ Experts, ExpertsUsed, ExpertFFN int }

// SpecArchs are the architectures that Synthesize can write.
var SpecArchs = []string{"llama", "qwen2", "qwen3", "gemma3", "gemma4", "gpt-oss", "qwen35", "lfm2",
	"mistral3", "olmo2", "granitehybrid", "nemotron_h", "deepseek2"}

// minVocab is what the tokenizer of a random model needs: 256 bytes and two special tokens.
const minVocab = 258

// SetDefaults fills what is 0 as models of that width usually have it: heads of 128, a quarter of them for keys and values,
// an FFN of 3.5 times the width.
func (s *Spec) SetDefaults() {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	if s.HeadDim > 0 {
		set(&s.Heads, max(1, s.Hidden/s.HeadDim))
	}
	set(&s.Heads, max(1, s.Hidden/128))
	if s.Heads%4 == 0 {
		set(&s.KVHeads, s.Heads/4)
	}
	set(&s.KVHeads, s.Heads)
	if s.Heads > 0 {
		set(&s.HeadDim, s.Hidden/s.Heads)
	}
	set(&s.FFN, (s.Hidden*7/2+255)/256*256)
	set(&s.Vocab, 32000)
	if s.Arch == "gpt-oss" {
		set(&s.Experts, 32)
	}
	if s.Experts > 0 {
		set(&s.ExpertsUsed, min(4, s.Experts))
		set(&s.ExpertFFN, s.FFN)
	}
	set(&s.Context, 8192)
}

// Validate refuses a shape that no model can have. Errors wrap ErrSpec.
func (s *Spec) Validate() error {
	var faults []string
	in := func(name string, value, low, high int) {
		if value < low || value > high {
			faults = append(faults, fmt.Sprintf("%s is %d, want %d to %d", name, value, low, high))
		}
	}
	if !slices.Contains(SpecArchs, s.Arch) {
		faults = append(faults, fmt.Sprintf("architecture %q, want one of %s", s.Arch, strings.Join(SpecArchs, ", ")))
	}
	in("layers", s.Layers, 1, 1024)
	in("hidden", s.Hidden, 8, 1<<20)
	in("heads", s.Heads, 1, 4096)
	in("kv-heads", s.KVHeads, 1, 4096)
	in("head-dim", s.HeadDim, 2, 4096)
	in("ffn", s.FFN, 8, 1<<20)
	in("vocab", s.Vocab, minVocab, 1<<24)
	in("context", s.Context, 1, 1<<31)
	in("experts", s.Experts, 0, 4096)
	in("experts-used", s.ExpertsUsed, min(1, s.Experts), s.Experts)
	in("expert-ffn", s.ExpertFFN, 8*min(1, s.Experts), 1<<20)
	in("per-layer", s.PerLayer, 0, 1<<14)
	in("shared-kv", s.SharedKV, 0, max(0, s.Layers-nearLayers))
	if !s.family().fits(s) {
		faults = append(faults, fmt.Sprintf("architecture %q cannot have such experts, inputs or shared keys (--experts, --per-layer, --shared-kv)", s.Arch))
	}
	if len(faults) == 0 && s.Heads%s.KVHeads != 0 {
		faults = append(faults, fmt.Sprintf("heads %d is no multiple of kv-heads %d", s.Heads, s.KVHeads))
	}
	if s.HeadDim%2 != 0 {
		faults = append(faults, fmt.Sprintf("head-dim %d is odd", s.HeadDim))
	}
	if len(faults) > 0 {
		return fmt.Errorf("convert: %s: %w", strings.Join(faults, "; "), ErrSpec)
	}
	return nil
}

// random is a tensor of a random model: values of standard deviation sigma around a mean, or given values.
type random struct {
	gguf.Info
	mean, sigma float64
	given       []float32 // nil = random
}

// layout collects the tensors of a random model.
type layout struct {
	*Spec
	kind quant.Type
	list []random
	out  float64 // gain of what adds to the residual stream: it shrinks with depth
}

// matrix adds a weight [rows, cols], or a stack of them; it keeps the size of what passes through (sigma gain/√cols).
func (l *layout) matrix(name string, gain float64, shape ...int) {
	sigma := gain * inverseRoot(shape[len(shape)-1])
	l.list = append(l.list, random{gguf.Info{Name: name, Type: typeFor(l.kind, name, shape), Shape: shape}, 0, sigma, nil})
}

func (l *layout) vector(name string, n int, mean, sigma float64) { l.numbers(name, mean, sigma, n) }

// numbers adds float32 values of any shape.
func (l *layout) numbers(name string, mean, sigma float64, shape ...int) {
	l.list = append(l.list, random{gguf.Info{Name: name, Type: quant.F32, Shape: shape}, mean, sigma, nil})
}

// norm adds the weight of a norm.
func (l *layout) norm(name string, n int) { l.vector(name+".weight", n, 1, 0.1) }

// tensors lists the model's tensors, whose activations and logits stay finite and of usual size however deep the model.
func (s *Spec) tensors(kind quant.Type) []random {
	l := &layout{Spec: s, kind: kind, out: inverseRoot(2 * s.Layers)}
	l.matrix("token_embd.weight", 1, s.Vocab, s.Hidden)
	f := s.family()
	f.outer(l)
	for i := range s.Layers {
		f.layer(l, i, fmt.Sprintf("blk.%d.", i))
	}
	l.norm(f.norm, s.Hidden)
	if !s.Tied && !f.tied {
		l.matrix("output.weight", 2, s.Vocab, s.Hidden)
	}
	return l.list
}

// attention adds the projections of a layer's attention with heads of a width.
func (l *layout) attention(b string, kvHeads, headDim int) {
	l.matrix(b+"attn_q.weight", 1, l.Heads*headDim, l.Hidden)
	l.matrix(b+"attn_k.weight", 1, kvHeads*headDim, l.Hidden)
	l.matrix(b+"attn_v.weight", 1, kvHeads*headDim, l.Hidden)
	l.matrix(b+"attn_output.weight", l.out, l.Hidden, l.Heads*headDim)
}

// network adds a gated feed-forward network.
func (l *layout) network(b string, width int) {
	l.matrix(b+"ffn_gate.weight", 1, width, l.Hidden)
	l.matrix(b+"ffn_up.weight", 1, width, l.Hidden)
	l.matrix(b+"ffn_down.weight", l.out, l.Hidden, width)
}

// decoder adds a layer of llama, qwen2, qwen3 or gemma3.
func (l *layout) decoder(b string) {
	l.norm(b+"attn_norm", l.Hidden)
	l.attention(b, l.KVHeads, l.HeadDim)
	q, kv := l.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	switch l.Arch {
	case "qwen2":
		l.vector(b+"attn_q.bias", q, 0, 0.1)
		l.vector(b+"attn_k.bias", kv, 0, 0.1)
		l.vector(b+"attn_v.bias", kv, 0, 0.1)
	case "gemma3":
		l.vector(b+"post_attention_norm.weight", l.Hidden, l.out, 0.1*l.out)
		l.vector(b+"post_ffw_norm.weight", l.Hidden, l.out, 0.1*l.out)
		fallthrough
	case "qwen3":
		l.norm(b+"attn_q_norm", l.HeadDim)
		l.norm(b+"attn_k_norm", l.HeadDim)
	}
	l.norm(b+"ffn_norm", l.Hidden)
	l.network(b, l.FFN)
}
