package model

import "fmt"

// Apertus: the llama decoder with norms on each head of q and k and a feed-forward network without a gate, whose activation (xIELU) has figures
// of its own in each layer.
func init() {
	registerArchitecture(architecture{config: apertusConfig, params: qwen3Params}, "apertus")
}

func apertusConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	c.Act, c.Gated = XIELU, false
	r.rope(c)
	positive, negative := r.eachFloat("xielu.alpha_p", c.Layers), r.eachFloat("xielu.alpha_n", c.Layers)
	beta, eps := r.eachFloat("xielu.beta", c.Layers), r.eachFloat("xielu.eps", c.Layers)
	if r.faults != nil {
		return c
	}
	for i := range c.Layer {
		c.Layer[i].Curve = Curve{P: softplus(positive[i]), N: beta[i] + softplus(negative[i]), Beta: beta[i], Eps: eps[i]}
	}
	return c
}

// eachFloat reads a number that GGUF has as one value or as one for each layer, under its bare name where the architecture's has none.
func (r *keyReader) eachFloat(name string, layers int) []float32 {
	k := r.key(name)
	if !r.meta.Has(k) {
		k = name
	}
	list, err := r.meta.Floats(k)
	if err != nil {
		one, out := r.floatKey(k), make([]float32, layers)
		for i := range out {
			out[i] = one
		}
		return out
	}
	if len(list) != layers {
		r.faults = append(r.faults, fmt.Errorf("metadata %q has %d values, want one for each of %d layers: %w", k, len(list), layers, ErrConfig))
	}
	return list
}
