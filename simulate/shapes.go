package simulate

import (
	"fmt"
	"slices"
	"strings"
)

// shape is a model's attention and matrices. (public model configurations)
type shape struct {
	layers, hidden, heads, kvHeads, headDim, ffn, vocab int
	gated                                               bool    // three matrices in the feed-forward network, not two
	params                                              float64 // published count, where the shape alone does not give it
}

var shapes = map[string]shape{
	"OPT-6.7B":        {layers: 32, hidden: 4096, heads: 32, kvHeads: 32, headDim: 128, ffn: 16384, vocab: 50272},
	"OPT-13B":         {layers: 40, hidden: 5120, heads: 40, kvHeads: 40, headDim: 128, ffn: 20480, vocab: 50272},
	"OPT-175B":        {layers: 96, hidden: 12288, heads: 96, kvHeads: 96, headDim: 128, ffn: 49152, vocab: 50272},
	"Qwen-7B":         {layers: 32, hidden: 4096, heads: 32, kvHeads: 32, headDim: 128, ffn: 11008, vocab: 151936, gated: true},
	"LongChat-7B":     {layers: 32, hidden: 4096, heads: 32, kvHeads: 32, headDim: 128, ffn: 11008, vocab: 32000, gated: true},
	"LLaMA-13B":       {layers: 40, hidden: 5120, heads: 40, kvHeads: 40, headDim: 128, ffn: 13824, vocab: 32000, gated: true},
	"Llama-2-13B":     {layers: 40, hidden: 5120, heads: 40, kvHeads: 40, headDim: 128, ffn: 13824, vocab: 32000, gated: true},
	"Llama-3.1-8B":    {layers: 32, hidden: 4096, heads: 32, kvHeads: 8, headDim: 128, ffn: 14336, vocab: 128256, gated: true},
	"Qwen2.5-7B":      {layers: 28, hidden: 3584, heads: 28, kvHeads: 4, headDim: 128, ffn: 18944, vocab: 152064, gated: true},
	"Qwen2.5-14B":     {layers: 48, hidden: 5120, heads: 40, kvHeads: 8, headDim: 128, ffn: 13824, vocab: 152064, gated: true},
	"Mistral-7B-v0.3": {layers: 32, hidden: 4096, heads: 32, kvHeads: 8, headDim: 128, ffn: 14336, vocab: 32768, gated: true},
	"Qwen3-30B-A3B":   {layers: 48, hidden: 2048, heads: 32, kvHeads: 4, headDim: 128, ffn: 768 * 8, vocab: 151936, gated: true, params: 30.5e9},
}

// modelNamed is a model's shape; an unknown name is an error that lists the known ones.
func modelNamed(name string) (shape, error) {
	s, ok := shapes[name]
	if !ok {
		var known []string
		for n := range shapes {
			known = append(known, n)
		}
		slices.Sort(known)
		return s, fmt.Errorf("model=%s: known are %s", name, strings.Join(known, ", "))
	}
	return s, nil
}

// kvBytes is one token's keys and values in half precision.
func (s shape) kvBytes() float64 { return 4 * float64(s.layers*s.kvHeads*s.headDim) }

// kvLayer is that of one layer.
func (s shape) kvLayer() float64 { return s.kvBytes() / float64(s.layers) }

// attnWeights and ffnWeights are the numbers in a layer's matrices.
func (s shape) attnWeights() float64 {
	return float64(s.hidden) * float64(2*s.heads*s.headDim+2*s.kvHeads*s.headDim)
}

func (s shape) ffnWeights() float64 {
	n := 2
	if s.gated {
		n = 3
	}
	return float64(n * s.hidden * s.ffn)
}

// weights are all numbers, the embedding once, or twice where the head has its own.
func (s shape) weights() float64 {
	if s.params > 0 {
		return s.params
	}
	heads := 1
	if s.gated {
		heads = 2
	}
	return float64(s.layers)*(s.attnWeights()+s.ffnWeights()) + float64(heads*s.hidden*s.vocab)
}

func (s shape) weightBytes() float64 { return 2 * s.weights() }

// active are the numbers that one token multiplies.
func (s shape) active() float64 {
	return float64(s.layers)*(s.attnWeights()+s.ffnWeights()) + float64(s.hidden*s.vocab)
}

// prefillFlops are the operations of a prompt of which alive(l) rows reach layer l, counted from 1; rows leave after the
// attention of a layer, before its feed-forward network. linear are those in matrices, attn those of causal attention.
func (s shape) prefillFlops(alive func(l int) float64) (linear, attn float64) {
	for l := 1; l <= s.layers; l++ {
		x, y := alive(l), alive(l)
		if l < s.layers {
			y = alive(l + 1)
		}
		linear += 2*x*s.attnWeights() + 2*y*s.ffnWeights()
		attn += 2 * float64(s.heads*s.headDim) * x * x
	}
	return linear + 2*float64(s.hidden*s.vocab), attn
}
