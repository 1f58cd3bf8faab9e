package convert

// DeepSeek V3 and GLM-4.7-Flash: latent keys and values, queries through a narrow product, and experts from the second layer on.

// latentShape is the width of the latent, of the shared rotated part of a key, and of the queries' narrow product; a head has HeadDim
// numbers beside the rotated ones, and as many of values.
func (s *Spec) latentShape() (latent, rotated, queries int) {
	return min(512, 4*s.HeadDim), max(2, s.HeadDim/4*2), max(1, s.Hidden*3/8)
}

// dense tells whether a layer has no experts.
func (s *Spec) dense(i int) bool { return s.Experts == 0 || i == 0 }

func latentLayer(l *layout, i int, b string) {
	latent, rotated, queries := l.latentShape()
	l.norm(b+"attn_norm", l.Hidden)
	l.matrix(b+"attn_q_a.weight", 1, queries, l.Hidden)
	l.norm(b+"attn_q_a_norm", queries)
	l.matrix(b+"attn_q_b.weight", 1, l.Heads*(l.HeadDim+rotated), queries)
	l.matrix(b+"attn_kv_a_mqa.weight", 1, latent+rotated, l.Hidden)
	l.norm(b+"attn_kv_a_norm", latent)
	l.matrix(b+"attn_k_b.weight", 1, l.Heads, latent, l.HeadDim)
	l.matrix(b+"attn_v_b.weight", 1, l.Heads, l.HeadDim, latent)
	l.matrix(b+"attn_output.weight", l.out, l.Hidden, l.Heads*l.HeadDim)
	l.norm(b+"ffn_norm", l.Hidden)
	if l.dense(i) {
		l.network(b, l.FFN)
		return
	}
	l.experts(b, false)
	l.vector(b+"exp_probs_b.bias", l.Experts, 0, 0.1)
	l.beside(b, true)
}

func latentMeta(s *Spec, set func(string, any)) {
	latent, rotated, queries := s.latentShape()
	set("attention.head_count_kv", uint32(1))
	set("attention.q_lora_rank", uint32(queries))
	set("attention.kv_lora_rank", uint32(latent))
	set("attention.key_length", uint32(latent+rotated))
	set("attention.value_length", uint32(latent))
	set("attention.key_length_mla", uint32(s.HeadDim+rotated))
	set("attention.value_length_mla", uint32(s.HeadDim))
	set("rope.dimension_count", uint32(rotated))
	besideMeta(s, set)
	if s.Experts > 0 {
		set("leading_dense_block_count", uint32(1))
		set("expert_gating_func", uint32(2)) // sigmoid
		set("expert_weights_norm", true)
		set("expert_weights_scale", float32(1.8))
	}
}
