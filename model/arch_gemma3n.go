package model

import "math"

// Gemma 3n (text): Gemma 4's windows, shared keys and per-layer inputs, on rows of several streams (AltUp), with a residual of low rank beside attention
// (LAuReL) and gates of which some layers leave only the largest.
func init() {
	registerArchitecture(architecture{config: gemma3nConfig, params: gemma3nParams}, "gemma3n")
}

func gemma3nConfig(r *reader) *Config {
	c := gemmaShared(r, 5)
	c.LogitSoftcap = r.floatOr("final_logit_softcapping", 30)
	c.Streams = Streams{Count: r.int("altup.num_inputs"), Active: r.intOr("altup.active_idx", 0)}
	if c.Streams.Count < 2 {
		r.fail("metadata %q is %d, want 2 to %d: %w", r.key("altup.num_inputs"), c.Streams.Count, maxStreams, ErrConfig)
	}
	const key = "activation_sparsity_scale"
	if !r.meta.Has(r.key(key)) || r.faults != nil {
		return c
	}
	scales, err := r.meta.Floats(r.key(key))
	if err != nil || len(scales) != c.Layers {
		r.fail("metadata %q has %d entries for %d layers: %w", r.key(key), len(scales), c.Layers, ErrConfig)
		return c
	}
	for i, s := range scales {
		if c.Layer[i].Sparse = !math.IsInf(float64(s), -1); !c.Layer[i].Sparse {
			continue // every gate stays
		}
		if c.Layer[i].Deviations = s; !(math.Abs(float64(s)) < 100) {
			r.fail("metadata %q is %g in layer %d, want a number of standard deviations or -inf: %w", r.key(key), s, i, ErrConfig)
		}
	}
	return c
}

func gemma3nParams(r *reader, c *Config) *Params {
	widths, p := r.eachInt("feed_forward_length", c.Layers, 0), outerParams(r, c)
	d, s := c.Hidden, c.Streams.Count
	r.perLayerOuter(c, p)
	p.StreamIn, p.StreamOut = r.experts("altup_proj", s-1, d, d), r.experts("altup_unembd_proj", s-1, d, d)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := sandwichedLayer(r, c, i, n, widths[i])
		l.Streams = &StreamParams{Router: r.linear(n+"altup_router", s, d), RouterNorm: r.norm(n+"altup_router_norm", d), Predict: r.vector(n+"altup_predict_coef.weight", s*s*s),
			Correct: r.vector(n+"altup_correct_coef.weight", s*s), Scale: r.optionalVector(n+"altup_correct_scale.weight", d)}
		rank := 0
		if t := r.tensorNamed(n + "laurel_l.weight"); t != nil {
			rank = t.Shape[0]
		}
		l.Laurel = &LaurelParams{Down: r.linear(n+"laurel_l", rank, d), Up: r.linear(n+"laurel_r", d, rank), Norm: r.norm(n+"laurel_post_norm", d)}
		return l
	})
}
