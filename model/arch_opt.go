package model

import "math"

// OPT: learned positions whose first two rows are not used, LayerNorm before the blocks (after them in OPT-350m, which also
// has narrower embeddings with a projection in and out), ReLU, biases. llama.cpp does not have it; the keys are in its style.
func init() {
	registerArchitecture(architecture{config: optConfig, params: optParams}, "opt")
}

func optConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.layerEps(c)
	r.activation(c, ReLU)
	c.Gated = false
	c.PosOffset = r.intKeyOr("terrace.position_offset", 2, math.MaxInt16)
	c.PostNorm = r.boolKeyOr("terrace.norm_after", false)
	c.NoFinal = r.boolKeyOr("terrace.no_final_norm", false)
	return c
}

// intKeyOr reads an optional count, at most hi, under a key that is not of the architecture.
func (r *keyReader) intKeyOr(key string, def, hi int) int {
	if !r.meta.Has(key) {
		return def
	}
	v, err := r.meta.Int(key)
	if err != nil || v < 0 || v > hi {
		r.fail("metadata %q is %d (%v), want 0 to %d: %w", key, v, err, hi, ErrConfig)
		return def
	}
	return v
}

func optParams(r *reader, c *Config) *Params {
	p := optOuter(r, c)
	p.Positions = r.linear("position_embd", c.Context+c.PosOffset, c.Hidden)
	return eachLayer(r, p, func(i int, _ string) LayerParams { return decoderLayer(r, c, i) })
}

// optOuter is outerParams with the projections of a narrower embedding, where the model has one.
func optOuter(r *reader, c *Config) *Params {
	if !r.file.Has("project_in.weight") {
		return outerParams(r, c)
	}
	width := r.intKeyOr("terrace.embedding_in_length", c.Hidden, maxHidden)
	narrow := *c
	narrow.Hidden = width
	narrow.NoFinal = true
	p := outerParams(r, &narrow)
	p.EmbedIn, p.EmbedOut = r.linear("project_in", c.Hidden, width), r.linear("project_out", width, c.Hidden)
	if !c.NoFinal {
		p.FinalNorm = r.norm("output_norm", c.Hidden)
	}
	return p
}
