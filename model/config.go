package model

import (
	"errors"
	"fmt"
	"math"
)

// NormKind is the normalisation of a model's blocks.
type NormKind uint8

const (
	RMSNorm   NormKind = iota // x / rms(x) · w
	LayerNorm                 // (x − mean) / std · w + b
)

// Activation is the nonlinearity of the feed-forward network.
type Activation uint8

const (
	SiLU     Activation = iota // x·σ(x)
	GELUTanh                   // the tanh form
	GELU                       // the erf form
	ReLU
)

// Config describes a decoder-only transformer completely enough for any backend to run it with a Params.
type Config struct {
	Arch    string // llama, gemma3, …
	Name    string // general.name of the file, may be empty
	Layers  int
	Hidden  int // D
	Heads   int // H
	KVHeads int // G, divides H
	KeyDim  int // dk
	ValDim  int // dv
	Vocab   int // rows of the embedding
	Context int // tokens the model was trained for

	Norm      NormKind
	NormEps   float32
	PostNorm  bool // norms stand after the residual sums (OPT-350m), not before the blocks
	NoFinal   bool // no norm before the head
	Act       Activation
	Gated     bool // act(gate) · up instead of act(up)
	Experts   int  // experts a MoE layer has; 0 = dense everywhere
	TopK      int  // experts used a token
	NormTopK  bool // weights of the used experts are normalised to sum 1
	PosOffset int  // learned positions: row of position 0 (OPT: 2)

	EmbedScale    float32 // multiplies the embedding (Gemma √D); 0 = 1
	ResidualScale float32 // multiplies each block's output before the sum (Granite); 0 = 1
	AttnScale     float32 // multiplies q·k; 0 = 1/√dk
	AttnSoftcap   float32 // cap·tanh(s/cap) on scores; 0 = none
	LogitSoftcap  float32 // the same on logits; 0 = none
	LogitScale    float32 // multiplies the logits; 0 = 1

	Ropes  []Rope        // distinct rotary tables; layers refer to them by index
	Layer  []LayerConfig // one a layer
	LogN   bool          // Qwen v1: q scaled by log_trained(position) beyond the trained length
	LogNAt int           // trained length of LogN
}

// LayerConfig is what may differ from layer to layer.
type LayerConfig struct {
	Window int  // sliding window in tokens: key visible iff posQ − posK < Window; 0 = all
	Rope   int  // index into Config.Ropes, -1 = no rotation
	MoE    bool // the feed-forward network is a mixture of experts
}

// Limits that no real model reaches; beyond them a file is refused before anything is allocated.
const (
	maxLayers  = 1024
	maxHidden  = 1 << 18
	maxHeads   = 1 << 12
	maxHeadDim = 1 << 12
	maxVocab   = 1 << 24
	maxContext = 1 << 31
	maxExperts = 1 << 12
)

// validate checks every figure that later code divides by, allocates with or indexes by, and names all that are wrong.
func (c *Config) validate() error {
	var errs []error
	in := func(name string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("model: %s is %d, want %d to %d: %w", name, v, lo, hi, ErrConfig))
		}
	}
	in("block_count (layers)", c.Layers, 1, maxLayers)
	in("embedding_length (hidden)", c.Hidden, 1, maxHidden)
	in("attention.head_count", c.Heads, 1, maxHeads)
	in("attention.head_count_kv", c.KVHeads, 1, maxHeads)
	in("attention.key_length", c.KeyDim, 1, maxHeadDim)
	in("attention.value_length", c.ValDim, 1, maxHeadDim)
	in("vocab_size", c.Vocab, 1, maxVocab)
	in("context_length", c.Context, 1, maxContext)
	in("expert_count", c.Experts, 0, maxExperts)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if c.Heads%c.KVHeads != 0 {
		errs = append(errs, fmt.Errorf("model: attention.head_count %d is not a multiple of head_count_kv %d: %w", c.Heads, c.KVHeads, ErrConfig))
	}
	if !(c.NormEps > 0 && c.NormEps < 1) {
		errs = append(errs, fmt.Errorf("model: layer_norm epsilon (eps) is %g, want above 0 and below 1: %w", c.NormEps, ErrConfig))
	}
	if c.Experts > 0 && (c.TopK < 1 || c.TopK > c.Experts) {
		errs = append(errs, fmt.Errorf("model: expert_used_count is %d of %d experts: %w", c.TopK, c.Experts, ErrConfig))
	}
	if c.Act == SiLU && !c.Gated {
		errs = append(errs, fmt.Errorf("model: SiLU without a gate is no architecture known here: %w", ErrConfig))
	}
	if len(c.Layer) != c.Layers {
		errs = append(errs, fmt.Errorf("model: %d layer descriptions for %d layers: %w", len(c.Layer), c.Layers, ErrConfig))
	}
	for i := range c.Ropes {
		if err := c.Ropes[i].validate(c.KeyDim); err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range []struct {
		name string
		v    float32
	}{{"embedding_scale", c.EmbedScale}, {"residual_scale", c.ResidualScale}, {"attention.scale", c.AttnScale},
		{"attn_logit_softcapping", c.AttnSoftcap}, {"final_logit_softcapping", c.LogitSoftcap}, {"logit_scale", c.LogitScale}} {
		if math.IsNaN(float64(f.v)) || math.IsInf(float64(f.v), 0) {
			errs = append(errs, fmt.Errorf("model: %s is %v: %w", f.name, f.v, ErrConfig))
		}
	}
	return errors.Join(errs...)
}

// Group is the number of query heads that share a key/value head.
func (c *Config) Group() int { return c.Heads / c.KVHeads }

// Scale is the factor on q·k.
func (c *Config) Scale() float32 {
	if c.AttnScale != 0 {
		return c.AttnScale
	}
	return float32(1 / math.Sqrt(float64(c.KeyDim)))
}

// KVElementsPerToken counts the K and V elements that one token adds over all layers and heads.
func (c *Config) KVElementsPerToken() int { return c.Layers * c.KVHeads * (c.KeyDim + c.ValDim) }

// orOne reads a factor whose zero value means 1.
func orOne(f float32) float32 {
	if f == 0 {
		return 1
	}
	return f
}
