package hf

import (
	"math"

	"terrace/weights/strictjson"
)

const (
	maxTheta  = 1e12
	maxFactor = 1e6
)

// rotary is the rotary embedding of one kind of layer, as config.json gives it.
type rotary struct {
	params fields // rope_scaling or rope_parameters (or its part for one layer type)
	method string // default, linear, dynamic, yarn, llama3, longrope
	theta  float64
	dim    int // dimensions of a head that rotate
	turns  int // of "proportional": pairs that rotate, the first of dim/2; the others have frequency 0
}

// ropeParameters finds the object that holds rope parameters: rope_scaling (classic) before rope_parameters
// (transformers 5), which may hold one object a layer type.
func (v *view) ropeParameters(layerType string) fields {
	p, ok := v.cfg.object("rope_scaling")
	if !ok || len(p.values) == 0 {
		p, _ = v.cfg.object("rope_parameters")
	}
	if p.has("full_attention") || p.has("sliding_attention") {
		p, _ = p.object(layerType)
	}
	return p
}

// partlyRotating are the architectures that can rotate a part of each head, with the part of a config that does not say.
var partlyRotating = map[string]float64{"phi3": 1, "glm4": 0.5, "glm4moe": 0.5, "minimax-m2": 1, "stablelm": 0.25, "laguna": 1,
	"qwen35": 0.25, "qwen35moe": 0.25, "qwen3next": 0.25, "qwen4exp": 0.25, "deepseek2": 1, "deepseek32": 1}

// rotary reads the rotary embedding of a layer type. The base is, in this order, the parameters' rope_theta, the config's
// key thetaKey, the family's default.
func (v *view) rotary(layerType, thetaKey string, defTheta float64) rotary {
	p := v.ropeParameters(layerType)
	r := rotary{params: p, theta: v.cfg.floatOr(thetaKey, defTheta, 1, maxTheta)}
	r.theta = p.floatOr("rope_theta", r.theta, 1, maxTheta)
	r.method = p.stringOr("rope_type", p.stringOr("type", "default"))
	const partial = "partial_rotary_factor"
	def, partly := partlyRotating[v.arch]
	if !partly {
		def = 1
	}
	part := v.cfg.floatOr(partial, def, 1e-3, 1)
	part = p.floatOr(partial, part, 1e-3, 1)
	if r.method == "proportional" {
		r.dim, r.turns = v.headDim, int(part*float64(v.headDim)/2)
		v.refuseUnless(r.dim%2 == 0 && r.turns > 0, "%s %g makes %d pairs of head_dim %d rotate, want 1 or more of an even number", partial, part, r.turns, v.headDim)
		return r
	}
	if dims := "rotary_dim"; partly && v.cfg.has(dims) && !v.cfg.has(partial) && !p.has(partial) {
		part = float64(v.cfg.int(dims, 1, v.headDim)) / float64(v.headDim)
	}
	if part != 1 && !partly {
		v.faults.add("%s: %s is %g, but models of type %s rotate whole heads: %w", v.cfg.where, partial, part, v.cfg.stringOr("model_type", v.arch), ErrConfig)
	}
	r.dim = int(float64(v.headDim) * part)
	if r.dim < 2 || r.dim%2 != 0 {
		v.faults.add("%s: rope rotates %d of head_dim %d dimensions (partial_rotary_factor), want an even number: %w", v.cfg.where, r.dim, v.headDim, ErrConfig)
	}
	return r
}

// ropeOfClass is how a class scales rotation where the config does not say: a JSON object of rope_parameters.
func (v *view) ropeOfClass(parameters string) {
	if v.cfg.has("rope_parameters") || v.cfg.has("rope_scaling") {
		return
	}
	p, err := strictjson.Object([]byte(parameters))
	if err != nil {
		panic(err)
	}
	v.cfg.values["rope_parameters"] = p
}

// rope publishes the one rotary embedding of a model whose layers all rotate alike.
func (v *view) rope(defTheta float64) {
	v.publishRope(v.rotary("full_attention", "rope_theta", defTheta))
}

// publishRope writes the keys (and tensors of frequency factors) of a rotary embedding.
func (v *view) publishRope(r rotary) {
	if len(v.faults.list) > 0 {
		return
	}
	v.setFloat("rope.freq_base", r.theta)
	v.setInt("rope.dimension_count", r.dim)
	switch r.method {
	case "default":
		if v.cfg.has("rope_condense_ratio") { // LongChat before rope_scaling was a key
			v.set("rope.scaling.type", "linear")
			v.setFloat("rope.scaling.factor", v.cfg.float("rope_condense_ratio", 1e-3, maxFactor))
		}
	case "linear":
		v.set("rope.scaling.type", "linear")
		v.setFloat("rope.scaling.factor", r.params.float("factor", 1e-3, maxFactor))
	case "dynamic":
		v.dynamicRope(r)
	case "yarn":
		v.yarnRope(r)
	case "llama3":
		v.llama3Rope(r)
	case "longrope", "su":
		v.longRope(r)
	case "proportional":
		v.proportionalRope(r)
	default:
		r.params.wrong("rope_type", "a known rope scaling (default, linear, dynamic, yarn, llama3, longrope, proportional)")
	}
}

// original is the context the model was trained with before its rope was scaled: the config's own key before the
// parameters', else the model's context.
func (v *view) original(r rotary) int {
	n := r.params.intOr("original_max_position_embeddings", v.context, 1, maxContext)
	return v.cfg.intOr("original_max_position_embeddings", n, 1, maxContext)
}

// dynamicRope is NTK scaling whose base grows with the sequence (no GGUF key has it).
func (v *view) dynamicRope(r rotary) {
	if r.dim == 2 {
		v.faults.add("%s: dynamic scaling needs more than 2 rotating dimensions: %w", r.params.where, ErrConfig)
	}
	v.setOurs("rope.scaling.type", "dynamic")
	v.setOurs("rope.scaling.factor", float32(r.params.float("factor", 1, maxFactor)))
	v.setOurs("rope.scaling.original_context_length", uint32(v.context))
}

// yarnRope follows YaRN (arXiv 2309.00071) with the attention factor of Hugging Face's configuration.
func (v *view) yarnRope(r rotary) {
	p, orig := r.params, v.original(r)
	factor := p.floatOr("factor", float64(v.context)/float64(orig), 1e-3, maxFactor)
	mscale := func(m float64) float64 {
		if factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(factor) + 1
	}
	usual := mscale(1)
	attention := usual
	if m, all := p.floatOr("mscale", 0, 0, 100), p.floatOr("mscale_all_dim", 0, 0, 100); m != 0 && all != 0 {
		attention = mscale(m) / mscale(all)
	}
	attention = p.floatOr("attention_factor", attention, 1e-3, 1e3)
	v.set("rope.scaling.type", "yarn")
	v.setFloat("rope.scaling.factor", factor)
	v.setInt("rope.scaling.original_context_length", orig)
	v.setFloat("rope.scaling.yarn_beta_fast", nonZero(p.floatOr("beta_fast", 32, 0, 1e6), 32))
	v.setFloat("rope.scaling.yarn_beta_slow", nonZero(p.floatOr("beta_slow", 1, 0, 1e6), 1))
	if attention != usual {
		v.setFloat("rope.scaling.attn_factor", attention/usual)
	}
	v.setOurs("rope.scaling.attention_factor", float32(attention))
	if !p.boolOr("truncate", true) {
		v.setOurs("rope.scaling.truncate", false)
	}
}

// llama3Rope divides each frequency by a factor that depends on its wavelength; GGUF stores the factors as a tensor.
func (v *view) llama3Rope(r rotary) {
	p := r.params
	factor, orig := p.float("factor", 1e-3, maxFactor), float64(v.original(r))
	low, high := p.float("low_freq_factor", 1e-3, maxFactor), p.float("high_freq_factor", 1e-3, maxFactor)
	if len(v.faults.list) > 0 {
		return
	}
	if high <= low {
		v.faults.add("%s: high_freq_factor %g is not above low_freq_factor %g: %w", p.where, high, low, ErrConfig)
		return
	}
	out := make([]float32, r.dim/2)
	for i := range out {
		wave := 2 * math.Pi * math.Pow(r.theta, float64(2*i)/float64(r.dim))
		switch {
		case wave < orig/high:
			out[i] = 1
		case wave > orig/low:
			out[i] = float32(factor)
		default:
			smooth := (orig/wave - low) / (high - low)
			out[i] = float32(1 / ((1-smooth)/factor + smooth))
		}
	}
	v.values("rope_freqs.weight", out)
}

// stands is the divisor of a frequency that stands for 0: no position turns by as much as a float32 shows.
const stands = 1e30

// proportionalRope pairs all dimensions of a head and has the first of the pairs rotate; GGUF stores that as divisors of the frequencies.
func (v *view) proportionalRope(r rotary) {
	if factor := r.params.floatOr("factor", 1, 1e-3, maxFactor); factor != 1 {
		v.set("rope.scaling.type", "linear")
		v.setFloat("rope.scaling.factor", factor)
	}
	if r.turns == r.dim/2 {
		return
	}
	out := make([]float32, r.dim/2)
	for i := range out {
		if out[i] = 1; i >= r.turns {
			out[i] = stands
		}
	}
	v.values("rope_freqs.weight", out)
}

// longRope has one factor a frequency, of which there are two sets: for sequences within the original context and beyond.
func (v *view) longRope(r rotary) {
	p, orig := r.params, v.original(r)
	if v.arch == "phi3" {
		orig = v.cfg.intOr("original_max_position_embeddings", 4096, 1, maxContext)
	}
	factor := p.floatOr("factor", float64(v.context)/float64(orig), 1e-3, maxFactor)
	attention := 1.0
	if factor > 1 && orig > 1 {
		attention = math.Sqrt(1 + math.Log(factor)/math.Log(float64(orig)))
	}
	attention = p.floatOr("attention_factor", attention, 1e-3, 1e3)
	long := p.numbers("long_factor", r.dim/2, 1e-3, maxFactor)
	short := p.numbers("short_factor", r.dim/2, 1e-3, maxFactor)
	if len(v.faults.list) > 0 {
		return
	}
	v.set("rope.scaling.type", "longrope")
	v.setInt("rope.scaling.original_context_length", orig)
	v.setFloat("rope.scaling.attn_factor", attention)
	v.values("rope_factors_long.weight", long)
	v.values("rope_factors_short.weight", short)
}

func nonZero(x, def float64) float64 {
	if x == 0 {
		return def
	}
	return x
}
