package model

import "fmt"

// feedForward fills the gated, plain or MoE feed-forward weights of a layer; widths come from the metadata.
func (r *reader) feedForward(c *Config, l *LayerParams, n string, moe bool) {
	if moe {
		r.expertWeights(c, l, n)
		return
	}
	r.denseWeights(c, l, n, r.perLayer("feed_forward_length", c.Layers))
}

// denseWeights fills a feed-forward network of a width.
func (r *tensorReader) denseWeights(c *Config, l *LayerParams, n string, width int) {
	if c.Gated {
		l.Gate = r.linear(n+"ffn_gate", width, c.Hidden)
	}
	l.Up = r.linear(n+"ffn_up", width, c.Hidden)
	l.Down = r.linear(n+"ffn_down", c.Hidden, width)
}

// expertWeights fills the router of a layer, its experts and the network beside them.
func (r *reader) expertWeights(c *Config, l *LayerParams, n string) {
	if router := n + "ffn_gate_inp.weight"; !r.file.Has(router) {
		r.fail("metadata %q is %d experts, but tensor %q is missing: %w", r.key("expert_count"), c.Experts, router, ErrConfig)
		return
	}
	width, wide := r.expertWidth(c), c.Hidden
	if c.MoELatent > 0 {
		wide = c.MoELatent
		l.ExpertIn, l.ExpertOut = r.linear(n+"ffn_latent_down", wide, c.Hidden), r.linear(n+"ffn_latent_up", c.Hidden, wide)
	}
	l.Router = r.linear(n+"ffn_gate_inp", c.Experts, c.Hidden)
	if c.Router.Bias {
		l.RouterBias = r.vector(n+"exp_probs_b.bias", c.Experts)
	}
	if packed := n + "ffn_gate_up_exps"; c.Gated && r.file.Has(packed+".weight") { // of each expert gate, then up
		l.ExpertGate, l.ExpertUp = r.expertParts(packed, c.Experts, 2*width, 0, width, wide), r.expertParts(packed, c.Experts, 2*width, width, width, wide)
	} else {
		if c.Gated {
			l.ExpertGate = r.experts(n+"ffn_gate_exps", c.Experts, width, wide)
		}
		l.ExpertUp = r.experts(n+"ffn_up_exps", c.Experts, width, wide)
	}
	l.ExpertDown = r.experts(n+"ffn_down_exps", c.Experts, wide, width)
	if c.Shared > 0 {
		if c.Gated {
			l.SharedGate = r.linear(n+"ffn_gate_shexp", c.Shared, c.Hidden)
		}
		l.SharedUp, l.SharedDown = r.linear(n+"ffn_up_shexp", c.Shared, c.Hidden), r.linear(n+"ffn_down_shexp", c.Hidden, c.Shared)
	}
}

// expertWidth is the inner width of an expert.
func (r *reader) expertWidth(c *Config) int {
	if width := r.perLayerOr("expert_feed_forward_length", c.Layers, 0); width > 0 { // 0 in files of architectures without a width of its own
		return width
	}
	return r.perLayerOr("feed_forward_length", c.Layers, 0)
}

// sharedWidth is the width of the network beside the experts: the file's, or that of so many experts.
func (r *reader) sharedWidth(c *Config) int {
	if width := r.intOr("expert_shared_feed_forward_length", 0); width > 0 {
		return width
	}
	count := r.intOr("expert_shared_count", 0)
	if count < 0 || count > maxExperts {
		r.fail("metadata %q is %d, want 0 to %d: %w", r.key("expert_shared_count"), count, maxExperts, ErrConfig)
		return 0
	}
	return count * r.expertWidth(c)
}

// gatingFunctions are the values of GGUF's expert_gating_func.
var gatingFunctions = map[int]RouterScore{1: SoftmaxRouter, 2: SigmoidRouter}

// router reads how experts are chosen and weighed, and which layers have none; own is the architecture's way where the file does not say.
func (r *reader) router(c *Config, own RouterScore, normalised bool) {
	r.mixture(c)
	if c.Experts == 0 {
		return
	}
	x, key := &c.Router, "expert_gating_func"
	x.Score = own
	if r.intOr(key, 0) != 0 {
		score, ok := gatingFunctions[r.int(key)]
		if !ok {
			r.fail("metadata %q is %d, want 1 (softmax) or 2 (sigmoid): %w", r.key(key), r.int(key), ErrConfig)
		}
		x.Score = score
	}
	c.NormTopK = r.normalises(normalised)
	x.Scale = r.floatOr("expert_weights_scale", 0)
	if groups := r.intOr("expert_group_count", 0); groups > 1 {
		x.Groups, x.GroupsUsed, x.GroupBest = groups, r.intOr("expert_group_used_count", groups), 2
	}
	c.Shared = r.sharedWidth(c)
	dense := r.intOr("leading_dense_block_count", 0)
	if dense < 0 || dense > c.Layers {
		r.fail("metadata %q is %d, want 0 to %d: %w", r.key("leading_dense_block_count"), dense, c.Layers, ErrConfig)
	}
	moe := r.flagsOr("terrace.moe.layers", c.Layers, true)
	for i := range c.Layer {
		c.Layer[i].MoE = i >= dense && moe[i]
	}
}

// normalises reads whether the weights of the chosen experts are made to sum to 1; own is the architecture's way. llama.cpp's
// llama_model_save_to_file, which alone writes expert_group_scale for every model, writes false where the architecture leaves no choice.
func (r *reader) normalises(own bool) bool {
	if r.meta.Has(r.key("expert_group_scale")) && !choosesNorm[r.arch] {
		return own
	}
	return r.boolOr("expert_weights_norm", own)
}

// choosesNorm are the architectures for which llama.cpp reads expert_weights_norm.
var choosesNorm = map[string]bool{"deepseek2": true, "deepseek32": true, "glm4moe": true, "laguna": true, "nemotron_h": true, "nemotron_h_moe": true}

// anyLayerHas reports whether a layer has a tensor of that name.
func (r *reader) anyLayerHas(c *Config, name string) bool {
	for i := range c.Layer {
		if r.file.Has(layerTensor(i, name)) {
			return true
		}
	}
	return false
}

// layerTensor is the name of a tensor of a layer.
func layerTensor(i int, name string) string { return fmt.Sprintf("blk.%d.%s", i, name) }
