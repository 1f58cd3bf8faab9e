package hf

// Mamba-2: state space layers alone.
func init() { register("mamba2", family{"mamba2", mamba2Figures, mamba2Tensors}) }

// endless is the context of models that know no longest one, as GGUF files have it.
const endless = 1 << 20

func mamba2Figures(v *view) {
	c := v.cfg
	v.layers, v.hidden = c.intOr("num_hidden_layers", 64, 1, maxLayers), c.intOr("hidden_size", 4096, 1, maxWidth)
	v.vocab, v.context = c.intOr("vocab_size", 32768, 1, maxVocab), endless
	v.setInt("context_length", v.context)
	v.setInt("embedding_length", v.hidden)
	v.setInt("block_count", v.layers)
	v.setInt("vocab_size", v.vocab)
	v.setFloat("attention.layer_norm_rms_epsilon", c.floatOr("layer_norm_epsilon", 1e-5, 1e-20, 0.5))
	v.setOurs("tie_word_embeddings", v.tied(false))
	v.siluConvolution()
	inner := int(c.floatOr("expand", 2, 0.01, 64) * float64(v.hidden))
	v.ssmFigures(ssm{heads: "num_heads", headDim: "head_dim", state: "state_size", groups: "n_groups", kernel: "conv_kernel",
		defHeads: 128, defDim: 64, defState: 128, defGroups: 8}, inner)
	v.timeStepLimit()
}

func mamba2Tensors(v *view) {
	bias, convBias := v.cfg.boolOr("use_bias", false), v.cfg.boolOr("use_conv_bias", true)
	v.matrix("token_embd.weight", "backbone.embeddings.weight", -1, v.vocab, v.hidden)
	v.vector("output_norm.weight", "backbone.norm_f.weight", -1, v.hidden, 0)
	v.head("lm_head.weight", "backbone.embeddings.weight", v.hidden)
	v.eachLayer("backbone.layers.", func(i int, name, hfName string) {
		v.vector(name+"attn_norm.weight", hfName+"norm.weight", i, v.hidden, 0)
		v.ssmTensors(i, name, hfName+"mixer.", bias, convBias, true)
	})
}
