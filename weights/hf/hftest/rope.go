package hftest

import (
	"math"

	"terrace/weights/gguf"
)

// frequencies returns radians a position for a sequence of that many tokens, and the factor on cos and sin.
func (m *Model) frequencies(length int, base float64, scaled bool) (freq []float64, amplitude float64) {
	dim := int(m.number("rope.dimension_count", float64(m.keyDim)))
	amplitude = 1
	method := m.text(m.arch+".rope.scaling.type", m.text("terrace.rope.scaling.type", ""))
	if !scaled {
		method = ""
	}
	factor := m.number("rope.scaling.factor", m.plain("terrace.rope.scaling.factor", 1))
	orig := m.number("rope.scaling.original_context_length", m.plain("terrace.rope.scaling.original_context_length", 0))
	if method == "dynamic" && float64(length) > orig {
		base *= math.Pow(factor*float64(length)/orig-(factor-1), float64(dim)/float64(dim-2))
	}
	freq = make([]float64, dim/2)
	for i := range freq {
		freq[i] = math.Pow(base, -2*float64(i)/float64(dim))
	}
	if div := m.tensors["rope_freqs.weight"]; div != nil && scaled {
		for i := range freq {
			freq[i] /= div.Data[i]
		}
	}
	switch method {
	case "linear":
		for i := range freq {
			freq[i] /= factor
		}
	case "longrope":
		set := m.tensors["rope_factors_short.weight"]
		if float64(length) > orig {
			set = m.tensors["rope_factors_long.weight"]
		}
		for i := range freq {
			freq[i] /= set.Data[i]
		}
		amplitude = m.number("rope.scaling.attn_factor", 1)
	case "yarn":
		edge := func(rotations float64) float64 {
			x := float64(dim) * math.Log(orig/(rotations*2*math.Pi)) / (2 * math.Log(base))
			return x
		}
		low, high := math.Floor(edge(m.number("rope.scaling.yarn_beta_fast", 32))), math.Ceil(edge(m.number("rope.scaling.yarn_beta_slow", 1)))
		if m.meta.Has("terrace.rope.scaling.truncate") {
			low, high = edge(m.number("rope.scaling.yarn_beta_fast", 32)), edge(m.number("rope.scaling.yarn_beta_slow", 1))
		}
		low, high = math.Max(low, 0), math.Min(high, float64(dim-1))
		if low == high {
			high += 0.001
		}
		for i := range freq {
			ramp := math.Min(math.Max((float64(i)-low)/(high-low), 0), 1)
			freq[i] = freq[i]/factor*ramp + freq[i]*(1-ramp)
		}
		amplitude = m.plain("terrace.rope.scaling.attention_factor", 1)
	}
	return freq, amplitude
}

// rotate turns the pairs (i, i+dim/2) of one head — or (2i, 2i+1) where GGUF has permuted them — by pos·freq.
func (m *Model) rotate(x []float64, pos int, freq []float64, amplitude float64) {
	interlaced := gguf.PermutesRotary(m.arch) && m.text("terrace.rope.layout", "norm") == "norm"
	for i, f := range freq {
		sin, cos := math.Sincos(float64(pos) * f)
		a, b := i, i+len(freq)
		if interlaced {
			a, b = 2*i, 2*i+1
		}
		x[a], x[b] = (x[a]*cos-x[b]*sin)*amplitude, (x[b]*cos+x[a]*sin)*amplitude
	}
}
