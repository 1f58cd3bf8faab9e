package hftest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Config is a config.json.
type Config map[string]any

// With returns a copy with some keys changed; a nil value removes the key.
func (c Config) With(change Config) Config {
	out := maps.Clone(c)
	for k, v := range change {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

func (c Config) int(key string) int { n, _ := c[key].(int); return n }

// Shapes are the tensors of a checkpoint, [out, in] as Hugging Face has them.
type Shapes map[string][]int

// Names are the tensors' names, sorted.
func (s Shapes) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Folder writes a model folder with F32 weights drawn from a fixed seed, norm weights around 1.
func Folder(t testing.TB, c Config, tensors Shapes) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(c)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
	}
	if err == nil {
		err = WriteTensors(filepath.Join(dir, "model.safetensors"), tensors)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// WriteTensors writes a safetensors file of random F32 tensors.
func WriteTensors(path string, tensors Shapes) error {
	rng := rand.New(rand.NewPCG(1, 2))
	header := map[string]any{}
	var data []byte
	for _, name := range tensors.Names() {
		n, mean := 1, 0.0
		for _, d := range tensors[name] {
			n *= d
		}
		if len(tensors[name]) == 1 {
			mean = 1
		}
		header[name] = map[string]any{"dtype": "F32", "shape": tensors[name], "data_offsets": []int{len(data), len(data) + 4*n}}
		for range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(mean+rng.NormFloat64()*0.3)))
		}
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return os.WriteFile(path, append(append(out, text...), data...), 0o600)
}

// RawTensor is a tensor of any dtype.
type RawTensor struct {
	DType string
	Shape []int // nil: a scalar
	Data  []byte
}

// Raw are the tensors of a checkpoint of any dtypes.
type Raw map[string]RawTensor

// WriteRaw writes a safetensors file.
func WriteRaw(path string, tensors Raw) error {
	header := map[string]any{}
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		header[name] = map[string]any{"dtype": t.DType, "shape": append([]int{}, t.Shape...), "data_offsets": []int{len(data), len(data) + len(t.Data)}}
		data = append(data, t.Data...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return os.WriteFile(path, append(append(out, text...), data...), 0o600)
}

// Llama is a small decoder config with the usual keys: 2 layers, 16 wide, 2 heads of 8 over one key/value head, vocabulary
// 32. model_type and whatever else differs is added with With.
func Llama() Config {
	return Config{"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
		"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 32, "max_position_embeddings": 64,
		"tie_word_embeddings": false}
}

// Decoder lists the tensors of a config with the usual keys: separate q, k, v and a gated network; a head of its own where
// tie_word_embeddings is there and false.
func Decoder(c Config) Shapes {
	d, ff, vocab := c.int("hidden_size"), c.int("intermediate_size"), c.int("vocab_size")
	dim := c.int("head_dim")
	if dim == 0 {
		dim = d / c.int("num_attention_heads")
	}
	q, kv := c.int("num_attention_heads")*dim, c.int("num_key_value_heads")*dim
	s := Shapes{"model.embed_tokens.weight": {vocab, d}, "model.norm.weight": {d}}
	if tied, given := c["tie_word_embeddings"].(bool); given && !tied {
		s["lm_head.weight"] = []int{vocab, d}
	}
	for i := range c.int("num_hidden_layers") {
		l := fmt.Sprintf("model.layers.%d.", i)
		s[l+"input_layernorm.weight"], s[l+"post_attention_layernorm.weight"] = []int{d}, []int{d}
		s[l+"self_attn.q_proj.weight"], s[l+"self_attn.o_proj.weight"] = []int{q, d}, []int{d, q}
		s[l+"self_attn.k_proj.weight"], s[l+"self_attn.v_proj.weight"] = []int{kv, d}, []int{kv, d}
		s[l+"mlp.gate_proj.weight"], s[l+"mlp.up_proj.weight"] = []int{ff, d}, []int{ff, d}
		s[l+"mlp.down_proj.weight"] = []int{d, ff}
	}
	return s
}

// EachLayer adds a tensor to every layer under stem (such as "model.layers.%d.").
func (s Shapes) EachLayer(stem string, layers int, name string, shape ...int) Shapes {
	for i := range layers {
		s[fmt.Sprintf(stem, i)+name] = shape
	}
	return s
}

// Qwen is a small Qwen v1 checkpoint: its config and tensors.
func Qwen() (Config, Shapes) {
	const d, ff, vocab, layers = 16, 24, 32, 2
	c := Config{"model_type": "qwen", "hidden_size": d, "intermediate_size": 2 * ff, "num_hidden_layers": layers,
		"num_attention_heads": 2, "kv_channels": d / 2, "vocab_size": vocab, "seq_length": 64, "max_position_embeddings": 64,
		"layer_norm_epsilon": 1e-6, "rotary_emb_base": 10000, "use_dynamic_ntk": true, "use_logn_attn": true,
		"tie_word_embeddings": false}
	s := Shapes{"transformer.wte.weight": {vocab, d}, "transformer.ln_f.weight": {d}, "lm_head.weight": {vocab, d}}
	for name, shape := range map[string][]int{"ln_1.weight": {d}, "ln_2.weight": {d}, "attn.c_attn.weight": {3 * d, d},
		"attn.c_attn.bias": {3 * d}, "attn.c_proj.weight": {d, d}, "mlp.w1.weight": {ff, d}, "mlp.w2.weight": {ff, d},
		"mlp.c_proj.weight": {d, ff}} {
		s.EachLayer("transformer.h.%d.", layers, name, shape...)
	}
	return c, s
}

// OPT is a small OPT checkpoint; width is word_embed_proj_dim (16 is the decoder's own), after says where the norms stand.
func OPT(width int, after bool) (Config, Shapes) {
	const d, ff, vocab, layers, context = 16, 24, 32, 2, 64
	c := Config{"model_type": "opt", "hidden_size": d, "ffn_dim": ff, "num_hidden_layers": layers, "num_attention_heads": 2,
		"vocab_size": vocab, "max_position_embeddings": context, "word_embed_proj_dim": width, "do_layer_norm_before": !after}
	p := "model.decoder."
	s := Shapes{p + "embed_tokens.weight": {vocab, width}, p + "embed_positions.weight": {context + 2, d}}
	if width != d {
		s[p+"project_in.weight"], s[p+"project_out.weight"] = []int{d, width}, []int{width, d}
	}
	if !after {
		s[p+"final_layer_norm.weight"], s[p+"final_layer_norm.bias"] = []int{d}, []int{d}
	}
	for name, shape := range map[string][]int{"self_attn_layer_norm": {d}, "final_layer_norm": {d}, "self_attn.q_proj": {d, d},
		"self_attn.k_proj": {d, d}, "self_attn.v_proj": {d, d}, "self_attn.out_proj": {d, d}, "fc1": {ff, d}, "fc2": {d, ff}} {
		s.EachLayer(p+"layers.%d.", layers, name+".weight", shape...)
		s.EachLayer(p+"layers.%d.", layers, name+".bias", shape[0])
	}
	return c, s
}
