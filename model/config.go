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
	ClampedSwiGLU // g·σ(α·g)·(u+1) of g ≤ limit and |u| ≤ limit: Config.Clamp
	XIELU         // LayerConfig.Curve
	SquaredReLU
)

// Config describes a decoder-only transformer completely enough for any backend to run it with a Params.
type Config struct {
	Arch    string // llama, gemma3, …
	Name    string // general.name of the file, may be empty
	Layers  int
	Vocab   int // rows of the embedding
	Context int // tokens the model was trained for

	Act   Activation
	Gated bool  // act(gate) · up instead of act(up)
	Clamp Clamp // of ClampedSwiGLU

	Layer []LayerConfig // one a layer

	Norms
	Mixture
	Multipliers
	Residual
	Positions
}

// Norms are how the residual is normalised.
type Norms struct {
	Norm      NormKind
	NormEps   float32
	PostNorm  bool    // norms stand after the residual sums (OPT-350m), not before the blocks
	NoFinal   bool    // no norm before the head
	LatentEps float32 // of the norms of latent queries and keys; 0 = 1e-6
}

// Mixture is what layers with experts have in common.
type Mixture struct {
	Experts   int  // experts a MoE layer has; 0 = dense everywhere
	TopK      int  // experts used a token
	NormTopK  bool // weights of the used experts are normalised to sum 1
	Router    Router
	MoELatent int // numbers of a row that experts work on, made and unmade by LayerParams.ExpertIn and ExpertOut; 0 = the row itself
	Shared    int // width of the network that every token uses beside the experts of a layer; 0 = none
}

// Multipliers scale what passes between layers.
type Multipliers struct {
	EmbedScale    float32 // multiplies the embedding (Gemma √D); 0 = 1
	ResidualScale float32 // multiplies each block's output before the sum (Granite); 0 = 1
	LogitSoftcap  float32 // the same on logits; 0 = none
	LogitScale    float32 // multiplies the logits; 0 = 1
}

// Residual is the row that layers hand on.
type Residual struct {
	Parallel bool    // attention and feed-forward network read the same norm, and both are added
	Hidden   int     // D
	PerLayer int     // P, numbers of a token that each layer is given beside its row; 0 = none
	Streams  Streams // rows are several copies of the residual, of which a layer works on one; the zero value = one
	Copies   int     // of the residual in a row, which hyper-connections read and write together; 0 = one, without any
}

// Positions are how places in the text enter.
type Positions struct {
	PosOffset int    // learned positions: row of position 0 (OPT: 2)
	Ropes     []Rope // distinct rotary tables; layers refer to them by index
	LogN      bool   // Qwen v1: q scaled by log_trained(position) beyond the trained length
	LogNAt    int    // trained length of LogN
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
	maxFFN     = 1 << 20
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
	in("vocab_size", c.Vocab, 1, maxVocab)
	in("context_length", c.Context, 1, maxContext)
	in("expert_count", c.Experts, 0, maxExperts)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if !(c.NormEps > 0 && c.NormEps < 1) {
		errs = append(errs, fmt.Errorf("model: layer_norm epsilon (eps) is %g, want above 0 and below 1: %w", c.NormEps, ErrConfig))
	}
	if c.Experts > 0 {
		errs = append(errs, c.validateRouter())
	}
	in("expert_shared_feed_forward_length", c.Shared, 0, maxFFN)
	in("hyper_connection.count", c.Copies, 0, maxCopies)
	in("moe_latent_size", c.MoELatent, 0, maxHidden)
	if c.Act == ClampedSwiGLU && !(c.Gated && c.Clamp.finite()) {
		errs = append(errs, fmt.Errorf("model: the clamped activation has alpha %g and limit %g, want finite numbers, the limit above 0: %w", c.Clamp.Alpha, c.Clamp.Limit, ErrConfig))
	}
	if c.Experts > 0 && (c.TopK < 1 || c.TopK > c.Experts) {
		errs = append(errs, fmt.Errorf("model: expert_used_count is %d of %d experts: %w", c.TopK, c.Experts, ErrConfig))
	}
	if c.Act == SiLU && !c.Gated {
		errs = append(errs, fmt.Errorf("model: SiLU without a gate is no architecture known here: %w", ErrConfig))
	}
	if len(c.Layer) != c.Layers {
		return errors.Join(append(errs, fmt.Errorf("model: %d layer descriptions for %d layers: %w", len(c.Layer), c.Layers, ErrConfig))...)
	}
	for i := range c.Layer {
		if err := c.validateLayer(i); err != nil {
			errs = append(errs, err)
			break // the others tend to have the same
		}
	}
	if err := c.validateRows(); err != nil {
		errs = append(errs, err)
	}
	for _, f := range []struct {
		name string
		v    float32
	}{{"embedding_scale", c.EmbedScale}, {"residual_scale", c.ResidualScale}, {"final_logit_softcapping", c.LogitSoftcap}, {"logit_scale", c.LogitScale}} {
		if math.IsNaN(float64(f.v)) || math.IsInf(float64(f.v), 0) {
			errs = append(errs, fmt.Errorf("model: %s is %v: %w", f.name, f.v, ErrConfig))
		}
	}
	return errors.Join(errs...)
}

// orOne reads a factor whose zero value means 1.
func orOne(f float32) float32 {
	if f == 0 {
		return 1
	}
	return f
}
