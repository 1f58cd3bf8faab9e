package hf

import (
	"errors"
	"io/fs"
)

// BERT: an encoder. Learned positions and segment types, LayerNorm after each residual sum, biases everywhere. The folder may
// come from sentence-transformers: 1_Pooling says how rows become one vector, sentence_bert_config.json how long a text may be.
func init() { register("bert", family{"bert", bertFigures, bertTensors}) }

// llama.cpp's numbers of pooling_type.
const (
	poolMean = 1
	poolCLS  = 2
)

func bertFigures(v *view) {
	n := names{layers: "num_hidden_layers", hidden: "hidden_size", heads: "num_attention_heads", ffn: "intermediate_size", context: "max_position_embeddings"}
	if !v.figures(n, defaults{context: 512, vocab: 30522, tied: true}) {
		return
	}
	v.setFloat("attention.layer_norm_epsilon", v.cfg.floatOr("layer_norm_eps", 1e-12, 1e-20, 0.5))
	v.set("attention.causal", false)
	v.set("token_type_count", uint32(v.cfg.intOr("type_vocab_size", 2, 1, maxExperts)))
	v.activation("hidden_act", "gelu")
	if kind := v.cfg.stringOr("position_embedding_type", "absolute"); kind != "absolute" {
		v.cfg.wrong("position_embedding_type", "absolute")
	}
	if v.cfg.boolOr("is_decoder", false) {
		v.cfg.wrong("is_decoder", "false")
	}
	v.sentence()
}

// sentence reads what sentence-transformers puts beside the model; a plain BERT is averaged.
func (v *view) sentence() {
	pooling := poolMean
	if c, ok := v.beside("1_Pooling/config.json"); ok {
		if c.has("pooling_mode") { // one word, of sentence-transformers 5
			switch c.stringOr("pooling_mode", "") {
			case "mean":
			case "cls":
				pooling = poolCLS
			default:
				c.wrong("pooling_mode", "mean or cls")
			}
		} else {
			pooling = poolingOf(c)
		}
	}
	v.setInt("pooling_type", pooling)
	if c, ok := v.beside("sentence_bert_config.json"); ok && c.has("max_seq_length") {
		v.setOurs("max_tokens", uint32(c.int("max_seq_length", 3, v.context)))
	}
}

// poolingOf reads a truth value for each pooling.
func poolingOf(c fields) int {
	mean, cls := c.boolOr("pooling_mode_mean_tokens", false), c.boolOr("pooling_mode_cls_token", false)
	for _, other := range []string{"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"} {
		if c.boolOr(other, false) {
			c.wrong(other, "false (mean and cls are known)")
		}
	}
	if mean == cls {
		c.wrong("pooling_mode_mean_tokens", "one pooling, mean or cls")
	}
	if cls && !mean {
		return poolCLS
	}
	return poolMean
}

// beside reads another object of the folder, where it is there.
func (v *view) beside(name string) (fields, bool) {
	m, err := readObject(v.dir, name, maxConfigBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.faults.add("%w", err)
	}
	return fields{where: name, values: m, faults: v.faults}, err == nil
}

func bertTensors(v *view) {
	v.prefix = v.files.stem("embeddings.word_embeddings.weight", "", "bert.")
	v.matrix("token_embd.weight", "embeddings.word_embeddings.weight", -1, v.vocab, v.hidden)
	v.matrix("position_embd.weight", "embeddings.position_embeddings.weight", -1, v.context, v.hidden)
	v.matrix("token_types.weight", "embeddings.token_type_embeddings.weight", -1, v.cfg.intOr("type_vocab_size", 2, 1, maxExperts), v.hidden)
	v.layerNorm("token_embd_norm", "embeddings.LayerNorm", -1)
	v.eachLayer("encoder.layer.", func(i int, name, hfName string) {
		v.linear(name+"attn_q", hfName+"attention.self.query", i, v.hidden, v.hidden, true)
		v.linear(name+"attn_k", hfName+"attention.self.key", i, v.hidden, v.hidden, true)
		v.linear(name+"attn_v", hfName+"attention.self.value", i, v.hidden, v.hidden, true)
		v.linear(name+"attn_output", hfName+"attention.output.dense", i, v.hidden, v.hidden, true)
		v.layerNorm(name+"attn_output_norm", hfName+"attention.output.LayerNorm", i)
		v.linear(name+"ffn_up", hfName+"intermediate.dense", i, v.ffn, v.hidden, true)
		v.linear(name+"ffn_down", hfName+"output.dense", i, v.hidden, v.ffn, true)
		v.layerNorm(name+"layer_output_norm", hfName+"output.LayerNorm", i)
	})
}
