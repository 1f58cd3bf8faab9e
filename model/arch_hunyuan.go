package model

// Hunyuan (dense): the llama decoder with norms on each head of q and k after their rotation.
func init() {
	registerArchitecture(architecture{config: hunyuanConfig, params: qwen3Params}, "hunyuan-dense")
}

func hunyuanConfig(r *reader) *Config {
	c := glm4Config(r)
	c.EachAttention(func(a *Attention) { a.NormAfterRope = true })
	return c
}
