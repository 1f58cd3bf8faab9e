package hf

import (
	"fmt"
	"slices"

	"terrace/weights/gguf"
)

// Qwen4-Exp (text): Qwen 3.5's mixture with hyper-connections, an indexer of blocks and n-grams.
func init() {
	register("qwen4_exp_text", family{"qwen4exp", qwen4Figures, qwen4Tensors})
	aliases["qwen4_exp"] = "qwen4_exp_text"
}

func qwen4Figures(v *view) {
	if list, ok := v.cfg.values["layer_types"].([]any); ok { // published ones say full_attention of the same layers
		for i, x := range list {
			if x == "indexed_attention" {
				list[i] = "full_attention"
			}
		}
	}
	n := usualNames
	n.ffn = ""
	if !qwenDelta(v, n, defaults{heads: 16, kvHeads: 2, headDim: 256, vocab: 248320, context: 32768, eps: 1e-6}) {
		return
	}
	c := v.cfg
	v.qwenExperts(512, 10)
	v.set("expert_weights_norm", c.boolOr("norm_topk_prob", true))
	v.setInt("hyper_connection.count", c.intOr("hc_count", 4, 2, maxHeads))
	v.setInt("hyper_connection.lowrank", c.intOr("hc_lowrank", 320, 1, maxWidth))
	if gate := c.stringOr("output_gate_type", c.stringOr("hidden_act", "silu")); gate != "silu" {
		v.refuseUnless(gate == "sigmoid", "output_gate_type is %q, want silu or sigmoid", gate)
		v.set("ssm.gate", gate)
	}
	v.indexFigures("indexer_n_heads", "indexer_head_dim", "indexer_budget", 0, 0, 0)
	ratio, budget := c.int("indexer_compress_ratio", 1, maxTopK), v.published("attention.indexer.top_k")
	v.setInt("attention.indexer.block_size", ratio)
	v.refuseUnless(c.int("indexer_kv_heads", 1, maxHeads) == 1, "indexer_kv_heads is not 1")
	v.refuseUnless(budget%max(ratio, 1) == 0, "indexer_budget %d is not a multiple of indexer_compress_ratio %d", budget, ratio)
	v.refuseUnless(v.published("attention.indexer.key_length") >= v.published("rope.dimension_count"), "indexer_head_dim is less than the numbers of a head that rotate")
	v.nGramFigures()
}

// nGramFigures publishes which layers embed n-grams, and how.
func (v *view) nGramFigures() {
	c := v.cfg
	ids, _ := c.values["ple_layer_ids"].([]any)
	if c.has("ple_layer_ids") && ids == nil {
		c.wrong("ple_layer_ids", "a list of layers")
	}
	if len(ids) == 0 || len(v.faults.list) > 0 {
		return
	}
	size, each := c.intOr("ngram_size", 3, 2, 16), c.intOr("heads_per_ngram", 8, 1, maxHeads)
	v.setInt("ple.ngram_size", size)
	v.setInt("ple.heads_per_ngram", each)
	width, heads := c.intOr("ple_embed_dim", v.hidden, 1, maxWidth), (size-1)*each
	if len(v.faults.list) > 0 {
		return
	}
	v.refuseUnless(width%heads == 0, "ple_embed_dim %d is not a multiple of the %d heads of n-grams", width, heads)
	v.setInt("ple.embedding_length", width)
	v.setInt("ple.conv_kernel", c.intOr("ple_conv_kernel_size", 4, 1, maxKernel))
	v.setInt("ple.eos_token_id", v.firstOf("eos_token_id"))
	layers := make([]int32, 0, len(ids))
	for _, x := range c.numbers("ple_layer_ids", len(ids), 1, float64(v.layers)) {
		layer := int(x) - 1
		if !slices.Contains(layers, int32(layer)) { // one that is named twice has one
			layers = append(layers, int32(layer))
		}
		v.refuseUnless(v.recurs(layer), "ple_layer_ids names layer %d, which is no linear_attention", layer+1)
	}
	v.set("ple.layers", layers)
}

// nGramHash publishes what the checkpoint stores of the hash of n-grams, for the layers that embed some in the order that the config names them.
func (v *view) nGramHash(layers []int) {
	heads := (v.published("ple.ngram_size") - 1) * v.published("ple.heads_per_ngram")
	for _, part := range [3]struct {
		key, name string
		n         int
	}{{"multipliers", "layer_multipliers", v.published("ple.ngram_size")}, {"head_vocab_sizes", "ngram_heads_vocab_sizes", heads}, {"head_offsets", "ngram_heads_offsets", heads}} {
		var all []int64
		for _, layer := range layers {
			all = append(all, v.whole(fmt.Sprintf("model.layers.%d.ple.ple_embedding.%s", layer, part.name), layer, part.n)...)
		}
		v.set("ple."+part.key, all)
	}
}

// firstOf reads a token id, or the first of a list of them.
func (v *view) firstOf(key string) int {
	if list, ok := v.cfg.values[key].([]any); ok && len(list) > 0 {
		v.cfg.values[key] = list[0]
	}
	return v.cfg.int(key, 0, maxVocab)
}

func qwen4Tensors(v *view) {
	bias, experts, shared := v.cfg.boolOr("attention_bias", false), v.published("expert_count"), v.published("expert_shared_feed_forward_length")
	heads, dim := v.published("attention.indexer.head_count"), v.published("attention.indexer.key_length")
	v.matrix("token_embd.weight", "model.embed_tokens.weight", -1, v.vocab, v.hidden)
	v.head("lm_head.weight", "model.embed_tokens.weight", v.hidden)
	v.hyper("hc_mix", "model.hyper_connection_mixer.", -1, false)
	table, _ := v.meta.Ints(v.arch + ".ple.layers") // absent: no layer has one
	if len(table) > 0 {
		v.nGramHash(table)
	}
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.hyper(name+"hc_attn", hfName+"attn_hyper_connection.", i, true)
		v.hyper(name+"hc_ffn", hfName+"mlp_hyper_connection.", i, true)
		if v.recurs(i) {
			v.deltaTensors(i, name, hfName+"linear_attn.")
		} else {
			attn, kv := hfName+"self_attn.", v.kvHeads*v.headDim
			v.linear(name+"attn_q", attn+"q_proj", i, 2*v.heads*v.headDim, v.hidden, bias)
			v.linear(name+"attn_k", attn+"k_proj", i, kv, v.hidden, bias)
			v.linear(name+"attn_v", attn+"v_proj", i, kv, v.hidden, bias)
			v.linear(name+"attn_output", attn+"o_proj", i, v.hidden, v.heads*v.headDim, bias)
			v.qkNorms(i, name, hfName, 1)
			v.rowRange(name+"indexer.q_proj.weight", attn+"indexer.index_qk_proj.weight", i, (heads+1)*dim, v.hidden, 0, heads*dim)
			v.rowRange(name+"indexer.k_proj.weight", attn+"indexer.index_qk_proj.weight", i, (heads+1)*dim, v.hidden, heads*dim, dim)
			v.vector(name+"indexer.q_norm.weight", attn+"indexer.q_layernorm.weight", i, dim, 1)
			v.vector(name+"indexer.k_norm.weight", attn+"indexer.k_layernorm.weight", i, dim, 1)
		}
		for _, layer := range table {
			if layer == i {
				v.nGramTensors(i, name, hfName+"ple.")
			}
		}
		mlp := hfName + "mlp."
		v.matrix(name+"ffn_gate_inp.weight", mlp+"gate.weight", i, experts, v.hidden)
		v.expertStacks(i, name, mlp+"experts.", projections)
		v.sharedExpert(i, name, mlp+"shared_expert.", shared, false)
		v.matrix(name+"ffn_gate_inp_shexp.weight", mlp+"shared_expert_gate.weight", i, 1, v.hidden)
	})
}

// hyper presents a hyper-connection.
func (v *view) hyper(name, hfName string, layer int, writes bool) {
	streams, rank := v.published("hyper_connection.count"), v.published("hyper_connection.lowrank")
	wide := streams * v.hidden
	v.vector(name+"_norm.weight", hfName+"hc_norm.weight", layer, wide, 1)
	v.matrix(name+"_down.weight", hfName+"input_mix_weight_down.weight", layer, rank, wide)
	v.matrix(name+"_up.weight", hfName+"input_mix_weight_up.weight", layer, wide, rank)
	if writes {
		v.matrix(name+"_inject.weight", hfName+"block_inject_weight.weight", layer, streams, wide)
	}
}

// nGramTensors presents a layer's embedding of n-grams; its table is one tensor, or as many parts as the config says.
func (v *view) nGramTensors(i int, name, hfName string) {
	wide, width := v.published("hyper_connection.count")*v.hidden, v.published("ple.embedding_length")
	heads := (v.published("ple.ngram_size") - 1) * v.published("ple.heads_per_ngram")
	v.matrix(name+"ple_key.weight", hfName+"key_proj.weight", i, wide, width)
	v.matrix(name+"ple_value.weight", hfName+"value_proj.weight", i, v.hidden, width)
	for _, of := range []string{"key", "query", "conv"} {
		v.vector(name+"ple_"+of+"_norm.weight", hfName+"norm_"+of+".weight", i, wide, 1)
	}
	kernel := v.published("ple.conv_kernel")
	v.flat(name+"ple_conv1d.weight", hfName+"conv1d.weight", i, []int{wide, 1, kernel}, kernel, 0, 1, wide, kernel)
	parts := v.cfg.intOr("split_ngram_parts", 512, 1, 1<<16)
	table := hfName + "ple_embedding.ngram_embedding."
	if v.files.tensor(v.prefix+table+"weight") != nil {
		v.tablePart(fmt.Sprintf("%sple_ngram_embd.0.weight", name), table+"weight", i, width/heads)
		return
	}
	for part := range parts {
		v.tablePart(fmt.Sprintf("%sple_ngram_embd.%d.weight", name, part), fmt.Sprintf("%sshard_%d.weight", table, part), i, width/heads)
		if len(v.faults.list) > 0 {
			return
		}
	}
}

// tablePart presents a part of a table with however many rows.
func (v *view) tablePart(name, hfName string, layer, cols int) {
	rows := 1
	if t := v.files.tensor(v.prefix + hfName); t != nil && len(t.Shape) == 2 {
		rows = t.Shape[0]
	}
	v.matrix(name, hfName, layer, rows, cols)
}

// rowRange presents rows [from, from+n) of a matrix [rows, cols].
func (v *view) rowRange(name, hfName string, layer, rows, cols, from, n int) {
	t := v.find(hfName, layer, rows, cols)
	if t == nil {
		return
	}
	v.add(gguf.NewTensor(name, t.Type, []int{n, cols}, func() ([]byte, error) {
		raw, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		size := t.Type.RowBytes(cols)
		return raw[from*size : (from+n)*size], nil
	}))
}
