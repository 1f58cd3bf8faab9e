package model

import (
	"fmt"
	"math"
)

// scaleRope applies the file's rope scaling method to the plain frequencies: linear (position interpolation, arXiv
// 2306.15595), yarn (arXiv 2309.00071), dynamic NTK, longrope (arXiv 2402.13753) and the per-frequency factors of Llama 3,
// which GGUF files hold as a tensor.
func (r *ropeReader) scaleRope(rope *Rope, base float64, c *Config) {
	if list := r.frequencyFactors("rope_freqs.weight", rope.Dim); list != nil {
		divide(rope.InvFreq, list)
	}
	method := r.stringOr("terrace.rope.scaling.type", r.stringOr(r.key("rope.scaling.type"), ""))
	linearKey := "rope.scaling.factor"
	if !r.meta.Has(r.key(linearKey)) && r.meta.Has(r.key("rope.scale_linear")) {
		linearKey = "rope.scale_linear" // files of 2023
	}
	if method == "" {
		method = "linear"
	}
	if r.file.Has("rope_factors_long.weight") {
		method = "longrope"
	}
	switch method {
	case "none":
		r.amplitude(rope, 1)
	case "linear":
		factor := r.stretch(linearKey)
		for i := range rope.InvFreq {
			rope.InvFreq[i] /= factor
		}
		r.amplitude(rope, 1)
	case "yarn":
		r.yarn(rope, base, c)
	case "longrope":
		r.longrope(rope, c)
	case "dynamic":
		r.dynamic(rope, base, c)
	default:
		r.fail("metadata %q: rope scaling %q is not known (none, linear, yarn, longrope, dynamic): %w", r.key("rope.scaling.type"), method, ErrConfig)
	}
}

// positive reads a required number above 0; after a fault it is 1.
func (r *ropeReader) positive(name string) float32 {
	v := r.float(name)
	if !(v > 0) || math.IsInf(float64(v), 0) {
		r.fail("metadata %q is %g, want a finite number above 0: %w", r.key(name), v, ErrConfig)
		return 1
	}
	return v
}

// frequencyFactors reads a tensor of one divisor a frequency [dim/2]; nil if it is absent or wrong.
func (r *ropeReader) frequencyFactors(name string, dim int) []float32 {
	if !r.file.Has(name) {
		return nil
	}
	t := r.tensor(name, dim/2)
	if t == nil {
		return nil
	}
	list, err := tensorValues(t)
	if err != nil {
		r.fail("%w", err)
		return nil
	}
	for i, f := range list {
		if !(f > 0) {
			r.fail("tensor %q: factor %d is %g, want above 0: %w", name, i, f, ErrConfig)
			return nil
		}
	}
	return list
}

func divide(freq, by []float32) {
	for i := range freq {
		freq[i] /= by[i]
	}
}

// original is the context of the unscaled rope.
func (r *ropeReader) original(c *Config) int {
	n := r.intOr("rope.scaling.original_context_length", c.Context)
	if n < 1 || n > maxContext {
		r.fail("metadata %q is %d, want 1 to %d: %w", r.key("rope.scaling.original_context_length"), n, maxContext, ErrConfig)
		return 1
	}
	return n
}

// yarn blends interpolated and plain frequencies: those that turn more than beta_fast times within the original context stay,
// those that turn less than beta_slow times are divided by the factor, with a ramp between (section 3.2 of the paper). The
// amplitude is 0.1·ln(factor)+1 (section 3.4) unless the file gives another.
func (r *ropeReader) yarn(rope *Rope, base float64, c *Config) {
	factor, orig := float64(r.stretch("rope.scaling.factor")), float64(r.original(c))
	edge := func(name string, def float32) float64 {
		turns := float64(r.floatOr(name, def))
		if !(turns > 0) {
			r.fail("metadata %q is %g, want above 0: %w", r.key(name), turns, ErrConfig)
			return 0
		}
		return float64(rope.Dim) * math.Log(orig/(turns*2*math.Pi)) / (2 * math.Log(base))
	}
	low, high := edge("rope.scaling.yarn_beta_fast", 32), edge("rope.scaling.yarn_beta_slow", 1)
	if r.boolKeyOr("terrace.rope.scaling.truncate", !r.exactRamp) {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(rope.Dim-1))
	if low == high {
		high += 0.001 // a step instead of a ramp
	}
	for i, f := range rope.InvFreq {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		rope.InvFreq[i] = float32(float64(f)/factor*ramp + float64(f)*(1-ramp))
	}
	amplitude := 1.0
	if factor > 1 {
		amplitude = 0.1*math.Log(factor) + 1
	}
	r.amplitude(rope, float32(amplitude))
	if r.meta.Has("terrace.rope.scaling.attention_factor") {
		rope.Amplitude = r.floatKey("terrace.rope.scaling.attention_factor")
		r.checkAmplitude(rope)
	}
}

// amplitude multiplies a method's own amplitude with the file's.
func (r *ropeReader) amplitude(rope *Rope, own float32) {
	rope.Amplitude = own * r.floatOr("rope.scaling.attn_factor", 1)
	r.checkAmplitude(rope)
}

// stretch reads a scaling's factor; absent or 0 it is 1, as llama.cpp reads and writes it.
func (r *ropeReader) stretch(name string) float32 {
	if r.floatOr(name, 0) == 0 {
		return 1
	}
	return r.positive(name)
}

// yarnScale is the amplitude that YaRN gives to scores for a factor: 0.1·m·ln(factor) + 1.
func yarnScale(factor, m float32) float32 {
	if factor <= 1 {
		return 1
	}
	return float32(0.1*float64(m)*math.Log(float64(factor))) + 1
}

// longrope divides each frequency by its own factor; beyond the original context another set of factors holds.
func (r *ropeReader) longrope(rope *Rope, c *Config) {
	short := r.frequencyFactors("rope_factors_short.weight", rope.Dim)
	long := r.frequencyFactors("rope_factors_long.weight", rope.Dim)
	if short == nil || long == nil {
		r.fail("rope scaling longrope: tensors rope_factors_short.weight and rope_factors_long.weight are not both usable: %w", ErrConfig)
		return
	}
	rope.LongFreq, rope.LongAt = append([]float32(nil), rope.InvFreq...), r.original(c)
	divide(rope.InvFreq, short)
	divide(rope.LongFreq, long)
	r.amplitude(rope, 1)
}

// dynamicReach bounds the context of a model with dynamic scaling: this many times what its factor says. The method has no
// limit of its own (its frequencies follow the sequence), but a default context needs one.
const dynamicReach = 4

// dynamic lets the base grow with the sequence beyond the trained context (no GGUF key has it, so the keys are ours).
func (r *ropeReader) dynamic(rope *Rope, base float64, c *Config) {
	factor := r.floatKey("terrace.rope.scaling.factor")
	at, err := r.meta.Int("terrace.rope.scaling.original_context_length")
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
		return
	}
	if !(factor >= 1) || at < 1 || rope.Dim < 4 {
		r.fail("rope scaling dynamic: factor %g, original context %d, %d dimensions: want at least 1, 1 and 4: %w", factor, at, rope.Dim, ErrConfig)
		return
	}
	rope.DynamicBase, rope.DynamicFactor, rope.DynamicAt = base, float64(factor), at
	c.Context = max(c.Context, int(min(float64(at)*float64(factor)*dynamicReach, maxContext)))
}

func (r *ropeReader) checkAmplitude(rope *Rope) {
	if !(rope.Amplitude > 0) || math.IsInf(float64(rope.Amplitude), 0) {
		r.fail("rope scaling: attention factor is %g, want a finite number above 0: %w", rope.Amplitude, ErrConfig)
	}
}

// floatKey reads a required number under a key that is not of the architecture.
func (r *keyReader) floatKey(key string) float32 {
	v, err := r.meta.Float(key)
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
	}
	return float32(v)
}

// floatKeyOr is floatKey of an optional number.
func (r *keyReader) floatKeyOr(key string, def float32) float32 {
	if !r.meta.Has(key) {
		return def
	}
	return r.floatKey(key)
}

// boolKeyOr reads an optional truth under a key that is not of the architecture.
func (r *keyReader) boolKeyOr(key string, def bool) bool {
	if !r.meta.Has(key) {
		return def
	}
	v, err := r.meta.Bool(key)
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
	}
	return v
}

// flagsOr reads an optional list of one 0 or 1 a layer; absent = all def.
func (r *keyReader) flagsOr(key string, layers int, def bool) []bool {
	out := make([]bool, layers)
	for i := range out {
		out[i] = def
	}
	if !r.meta.Has(key) {
		return out
	}
	list, err := r.meta.Ints(key)
	if err == nil && len(list) != layers {
		err = fmt.Errorf("metadata %q has %d entries for %d layers", key, len(list), layers)
	}
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
		return out
	}
	for i, v := range list {
		out[i] = v != 0
	}
	return out
}
