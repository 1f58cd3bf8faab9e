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
	Arch    string // llama, qwen2, qwen3 or gemma3
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
}

// SpecArchs are the architectures that Synthesize can write.
var SpecArchs = []string{"llama", "qwen2", "qwen3", "gemma3"}

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

// random is a tensor of a random model: values of standard deviation sigma around a mean.
type random struct {
	gguf.Info
	mean, sigma float64
}

// tensors lists the model's tensors. Matrices keep the size of what passes through (sigma 1/√columns), those that add to the
// residual stream shrink with depth, so that activations and logits stay finite and of usual size however deep the model.
func (s *Spec) tensors(kind quant.Type) []random {
	var list []random
	matrix := func(name string, rows, cols int, gain float64) {
		shape := []int{rows, cols}
		list = append(list, random{gguf.Info{Name: name, Type: typeFor(kind, name, shape), Shape: shape}, 0, gain * inverseRoot(cols)})
	}
	vector := func(name string, n int, mean, sigma float64) {
		list = append(list, random{gguf.Info{Name: name, Type: quant.F32, Shape: []int{n}}, mean, sigma})
	}
	q, kv, out := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim, inverseRoot(2*s.Layers)
	matrix("token_embd.weight", s.Vocab, s.Hidden, 1)
	for i := range s.Layers {
		b := fmt.Sprintf("blk.%d.", i)
		vector(b+"attn_norm.weight", s.Hidden, 1, 0.1)
		matrix(b+"attn_q.weight", q, s.Hidden, 1)
		matrix(b+"attn_k.weight", kv, s.Hidden, 1)
		matrix(b+"attn_v.weight", kv, s.Hidden, 1)
		matrix(b+"attn_output.weight", s.Hidden, q, out)
		switch s.Arch {
		case "qwen2":
			vector(b+"attn_q.bias", q, 0, 0.1)
			vector(b+"attn_k.bias", kv, 0, 0.1)
			vector(b+"attn_v.bias", kv, 0, 0.1)
		case "gemma3":
			vector(b+"post_attention_norm.weight", s.Hidden, out, 0.1*out)
			vector(b+"post_ffw_norm.weight", s.Hidden, out, 0.1*out)
			fallthrough
		case "qwen3":
			vector(b+"attn_q_norm.weight", s.HeadDim, 1, 0.1)
			vector(b+"attn_k_norm.weight", s.HeadDim, 1, 0.1)
		}
		vector(b+"ffn_norm.weight", s.Hidden, 1, 0.1)
		matrix(b+"ffn_gate.weight", s.FFN, s.Hidden, 1)
		matrix(b+"ffn_up.weight", s.FFN, s.Hidden, 1)
		matrix(b+"ffn_down.weight", s.Hidden, s.FFN, out)
	}
	vector("output_norm.weight", s.Hidden, 1, 0.1)
	if !s.Tied && s.Arch != "gemma3" {
		matrix("output.weight", s.Vocab, s.Hidden, 2)
	}
	return list
}
