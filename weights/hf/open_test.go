package hf_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/weights/gguf"
	"terrace/weights/hf"
	"terrace/weights/hf/hftest"
)

type config = hftest.Config

// tiny is a llama of one layer: 8 wide, 2 heads of 4, vocabulary 16.
var tiny = config{"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
	"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 16, "max_position_embeddings": 64}

func tinyTensors() hftest.Shapes {
	l := "model.layers.0."
	return hftest.Shapes{"model.embed_tokens.weight": {16, 8}, "lm_head.weight": {16, 8}, "model.norm.weight": {8},
		l + "input_layernorm.weight": {8}, l + "post_attention_layernorm.weight": {8},
		l + "self_attn.q_proj.weight": {8, 8}, l + "self_attn.k_proj.weight": {4, 8},
		l + "self_attn.v_proj.weight": {4, 8}, l + "self_attn.o_proj.weight": {8, 8},
		l + "mlp.gate_proj.weight": {12, 8}, l + "mlp.up_proj.weight": {12, 8}, l + "mlp.down_proj.weight": {8, 12}}
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) (*gguf.Meta, map[string]*gguf.Tensor, error) {
	t.Helper()
	meta, list, closer, err := hf.Open(dir)
	if err != nil {
		if meta != nil || list != nil || closer != nil {
			t.Error("an error comes with a model")
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %v", err)
		}
		return nil, nil, err
	}
	t.Cleanup(func() {
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	})
	tensors := map[string]*gguf.Tensor{}
	for _, x := range list {
		tensors[x.Name] = x
	}
	return meta, tensors, nil
}

// TestBadConfig changes one thing of a good model; the error must have the sentinel and name the key.
func TestBadConfig(t *testing.T) {
	rope := func(p config) config { return config{"rope_scaling": p} }
	for _, c := range []struct {
		change config
		want   error
		name   string
	}{
		{config{"model_type": "banana"}, hf.ErrUnknownArchitecture, "banana"},
		{config{"model_type": nil}, hf.ErrUnknownArchitecture, "model_type"},
		{config{"quantization_config": config{"quant_method": "gptq"}}, hf.ErrQuantized, "gptq"},
		{config{"hidden_size": "8"}, hf.ErrConfig, "hidden_size"},
		{config{"hidden_size": 9}, hf.ErrConfig, "num_attention_heads"},
		{config{"hidden_size": nil}, hf.ErrConfig, "hidden_size"},
		{config{"num_attention_heads": 0}, hf.ErrConfig, "num_attention_heads"},
		{config{"num_attention_heads": -2}, hf.ErrConfig, "num_attention_heads"},
		{config{"num_key_value_heads": 3}, hf.ErrConfig, "num_key_value_heads"},
		{config{"num_hidden_layers": 1000000000}, hf.ErrConfig, "num_hidden_layers"},
		{config{"num_hidden_layers": 1.5}, hf.ErrConfig, "num_hidden_layers"},
		{config{"num_hidden_layers": 2}, hf.ErrMissingTensor, "layer 1"},
		{config{"vocab_size": 17}, hf.ErrShape, "embed_tokens"},
		{config{"head_dim": 2}, hf.ErrShape, "q_proj"},
		{config{"intermediate_size": 16}, hf.ErrShape, "gate_proj"},
		{config{"rms_norm_eps": -1}, hf.ErrConfig, "rms_norm_eps"},
		{config{"rms_norm_eps": true}, hf.ErrConfig, "rms_norm_eps"},
		{config{"rope_theta": 0}, hf.ErrConfig, "rope_theta"},
		{config{"rope_theta": json.RawMessage("1e999")}, hf.ErrConfig, "rope_theta"},
		{config{"partial_rotary_factor": 0.3}, hf.ErrConfig, "partial_rotary_factor"},
		{config{"partial_rotary_factor": 0.5}, hf.ErrConfig, "rotate whole heads"},
		{config{"rope_parameters": config{"rope_type": "default", "partial_rotary_factor": 0.5}}, hf.ErrConfig, "rotate whole heads"},
		{config{"model_type": "gemma", "num_key_value_heads": json.RawMessage("null"), "head_dim": 4}, hf.ErrConfig, "num_key_value_heads is null"},
		{config{"model_type": "qwen3", "head_dim": json.RawMessage("null")}, hf.ErrConfig, "head_dim is null"},
		{config{"hidden_act": "cube"}, hf.ErrConfig, "hidden_act"},
		{config{"attention_bias": 1}, hf.ErrConfig, "attention_bias"},
		{config{"attention_bias": true}, hf.ErrMissingTensor, "q_proj.bias"},
		{config{"tie_word_embeddings": "yes"}, hf.ErrConfig, "tie_word_embeddings"},
		{config{"rope_scaling": 4}, hf.ErrConfig, "rope_scaling"},
		{rope(config{"type": "spiral", "factor": 2}), hf.ErrConfig, "spiral"},
		{rope(config{"type": "linear"}), hf.ErrConfig, "factor"},
		{rope(config{"type": "linear", "factor": 0}), hf.ErrConfig, "factor"},
		{rope(config{"type": "dynamic", "factor": 0.5}), hf.ErrConfig, "factor"},
		{rope(config{"type": "yarn", "factor": -1}), hf.ErrConfig, "factor"},
		{rope(config{"type": "llama3", "factor": 8}), hf.ErrConfig, "low_freq_factor"},
		{rope(config{"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}), hf.ErrConfig, "high_freq_factor"},
		{rope(config{"type": "longrope", "short_factor": []int{1, 1}}), hf.ErrConfig, "long_factor"},
		{rope(config{"type": "longrope", "long_factor": []int{1}, "short_factor": []int{1, 1}}), hf.ErrConfig, "long_factor"},
		{rope(config{"type": "longrope", "long_factor": []int{1, 0}, "short_factor": []int{1, 1}}), hf.ErrConfig, "long_factor"},
	} {
		text, _ := json.Marshal(c.change)
		t.Run(string(text), func(t *testing.T) {
			_, _, err := open(t, hftest.Folder(t, tiny.With(c.change), tinyTensors()))
			if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.name) {
				t.Errorf("error %v, want %q with %q in it", err, c.want, c.name)
			}
		})
	}
}

// TestBadJSON writes config.json byte for byte.
func TestBadJSON(t *testing.T) {
	good, _ := json.Marshal(tiny)
	deep := strings.Repeat("[", 20000)
	for name, c := range map[string]struct{ text, want string }{
		"empty":     {"", "EOF"},
		"array":     {"[]", "object"},
		"null":      {"null", "object"},
		"deep":      {`{"a":` + deep, "nested deeper"},
		"cut":       {string(good[:len(good)-1]), "JSON"},
		"after":     {string(good) + "{}", "follows"},
		"duplicate": {`{"model_type":"llama","model_type":"gpt2"}`, "duplicate"},
		"utf8":      {"{\"model_type\":\"\xff\"}", "UTF-8"},
		"nan":       {`{"rope_theta":NaN}`, "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := hftest.Folder(t, tiny, tinyTensors())
			write(t, filepath.Join(dir, "config.json"), []byte(c.text))
			_, _, err := open(t, dir)
			if !errors.Is(err, hf.ErrConfig) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "config.json") {
				t.Errorf("error %v, want one with %q and config.json in it", err, c.want)
			}
		})
	}
}

// TestMissingTensor takes out each tensor in turn: the error names file and tensor, and the layer where it has one.
func TestMissingTensor(t *testing.T) {
	for _, name := range tinyTensors().Names() {
		tensors := tinyTensors()
		delete(tensors, name)
		_, _, err := open(t, hftest.Folder(t, tiny, tensors))
		text := fmt.Sprint(err)
		if !errors.Is(err, hf.ErrMissingTensor) || !strings.Contains(text, name) || !strings.Contains(text, "model.safetensors") {
			t.Errorf("without %s: error %v", name, err)
		}
		if strings.Contains(name, ".0.") && !strings.Contains(text, "layer 0") {
			t.Errorf("without %s: error %v does not name the layer", name, err)
		}
	}
}

func TestTied(t *testing.T) {
	tensors := tinyTensors()
	delete(tensors, "lm_head.weight")
	meta, got, err := open(t, hftest.Folder(t, tiny.With(config{"tie_word_embeddings": true}), tensors))
	if err != nil {
		t.Fatal(err)
	}
	if tied, err := meta.Bool("terrace.tie_word_embeddings"); err != nil || !tied || got["output.weight"] != nil {
		t.Errorf("tied %v (%v), output.weight %v", tied, err, got["output.weight"])
	}
}

// TestLayersBeyond refuses weights of a layer that the config does not have, and ignores tensors of no layer.
func TestLayersBeyond(t *testing.T) {
	tensors := tinyTensors()
	tensors["vision.unused"] = []int{3}
	tensors["model.layers.1.leftover.weight"] = []int{3}
	if _, _, err := open(t, hftest.Folder(t, tiny, tensors)); err != nil {
		t.Errorf("a tensor nobody asks for: %v", err)
	}
	tensors["model.layers.1.mlp.up_proj.weight"] = []int{12, 8}
	if _, _, err := open(t, hftest.Folder(t, tiny, tensors)); !errors.Is(err, hf.ErrConfig) || !strings.Contains(err.Error(), "num_hidden_layers") {
		t.Errorf("a layer beyond the config: %v", err)
	}
}

// TestFiles covers what stands in the place of the weights.
func TestFiles(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.safetensors")
	if err := hftest.WriteTensors(outside, tinyTensors()); err != nil {
		t.Fatal(err)
	}
	index := func(file string) string {
		weightMap := map[string]string{}
		for name := range tinyTensors() {
			weightMap[name] = file
		}
		text, _ := json.Marshal(map[string]any{"weight_map": weightMap})
		return string(text)
	}
	for name, c := range map[string]struct {
		prepare func(dir string) error
		want    error
		text    string
	}{
		"none":      {func(string) error { return nil }, hf.ErrNoWeights, "model.safetensors"},
		"pickle":    {func(d string) error { return os.WriteFile(d+"/pytorch_model.bin", []byte("x"), 0o600) }, hf.ErrNoWeights, "pickle"},
		"directory": {func(d string) error { return os.Mkdir(d+"/model.safetensors", 0o700) }, nil, "model.safetensors"},
		"link":      {func(d string) error { return os.Symlink(outside, d+"/model.safetensors") }, hf.ErrOutside, "outside"},
		"loop":      {func(d string) error { return os.Symlink("model.safetensors", d+"/model.safetensors") }, nil, "link"},
		"absolute": {func(d string) error {
			return os.WriteFile(d+"/model.safetensors.index.json", []byte(index(outside)), 0o600)
		}, hf.ErrOutside, "weight_map"},
		"above": {func(d string) error {
			return os.WriteFile(d+"/model.safetensors.index.json", []byte(index("../x.safetensors")), 0o600)
		}, hf.ErrOutside, "weight_map"},
		"ending": {func(d string) error {
			return os.WriteFile(d+"/model.safetensors.index.json", []byte(index("config.bin")), 0o600)
		}, hf.ErrOutside, "config.bin"},
		"shard": {func(d string) error {
			return os.WriteFile(d+"/model.safetensors.index.json", []byte(index("a.safetensors")), 0o600)
		}, os.ErrNotExist, "a.safetensors"},
		"map": {func(d string) error {
			return os.WriteFile(d+"/model.safetensors.index.json", []byte(`{"weight_map":[]}`), 0o600)
		}, hf.ErrConfig, "weight_map"},
		"number": {func(d string) error {
			return os.WriteFile(d+"/model.safetensors.index.json", []byte(`{"weight_map":{"a":1}}`), 0o600)
		}, hf.ErrConfig, "file name"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := hftest.Folder(t, tiny, tinyTensors())
			if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
				t.Fatal(err)
			}
			if err := c.prepare(dir); err != nil {
				t.Fatal(err)
			}
			_, _, err := open(t, dir)
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want %v with %q in it", err, c.want, c.text)
			}
		})
	}
}

// TestSharded splits a model in two and checks that the index is believed only as far as the files bear it out.
func TestSharded(t *testing.T) {
	dir := hftest.Folder(t, tiny, tinyTensors())
	parts, weightMap := []hftest.Shapes{{}, {}}, map[string]string{}
	for i, name := range tinyTensors().Names() {
		parts[i%2][name] = tinyTensors()[name]
		weightMap[name] = fmt.Sprintf("part-%d.safetensors", i%2)
	}
	if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	for i, p := range parts {
		if err := hftest.WriteTensors(filepath.Join(dir, fmt.Sprintf("part-%d.safetensors", i)), p); err != nil {
			t.Fatal(err)
		}
	}
	index := func() {
		text, _ := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": weightMap})
		write(t, filepath.Join(dir, "model.safetensors.index.json"), text)
	}
	index()
	_, list, closer, err := hf.Open(dir)
	if err != nil || len(list) != len(tinyTensors()) {
		t.Fatalf("%d tensors, error %v", len(list), err)
	}
	defer closer.Close()
	files := closer.(interface {
		SizeBytes() int64
		CheckUnchanged() error
	})
	if err := files.CheckUnchanged(); err != nil || files.SizeBytes() < 1000 {
		t.Errorf("%d bytes, error %v", files.SizeBytes(), err)
	}
	write(t, filepath.Join(dir, "part-1.safetensors.new"), []byte("x"))
	if err := os.Rename(filepath.Join(dir, "part-1.safetensors.new"), filepath.Join(dir, "part-1.safetensors")); err != nil {
		t.Fatal(err)
	}
	if err := files.CheckUnchanged(); err == nil {
		t.Error("another file at the path of a shard was not seen")
	}
	if err := hftest.WriteTensors(filepath.Join(dir, "part-1.safetensors"), parts[1]); err != nil {
		t.Fatal(err)
	}
	weightMap["model.norm.weight"] = map[string]string{"part-0.safetensors": "part-1.safetensors", "part-1.safetensors": "part-0.safetensors"}[weightMap["model.norm.weight"]]
	index()
	if _, _, err := open(t, dir); !errors.Is(err, hf.ErrMissingTensor) || !strings.Contains(err.Error(), "model.norm.weight") {
		t.Errorf("a tensor in another shard than the index says: %v", err)
	}
}

// TestShardsOfNeighbours: copies of a tensor are one where they are equal, byte for byte; what the index leaves out is in the shards; a whole
// numbered set needs no index.
func TestShardsOfNeighbours(t *testing.T) {
	dir := hftest.Folder(t, tiny, tinyTensors())
	if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	parts, weightMap := []hftest.Shapes{{}, {}}, map[string]string{}
	file := func(i int) string { return fmt.Sprintf("model-%05d-of-00002.safetensors", i+1) }
	for i, name := range tinyTensors().Names() {
		parts[i%2][name] = tinyTensors()[name]
		if name != "model.norm.weight" {
			weightMap[name] = file(i % 2)
		}
	}
	put := func(i int) {
		t.Helper()
		if err := hftest.WriteTensors(filepath.Join(dir, file(i)), parts[i]); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	put(1)
	index := filepath.Join(dir, "model.safetensors.index.json")
	text, _ := json.Marshal(map[string]any{"weight_map": weightMap})
	whole := func(what string) {
		t.Helper()
		meta, list, err := open(t, dir)
		if err != nil || len(list) != len(tinyTensors()) {
			t.Errorf("%s: %d tensors, %v, error %v", what, len(list), meta, err)
		}
	}
	whole("no index")
	write(t, index, text)
	whole("a tensor that the index leaves out")
	parts[0] = tinyTensors()
	put(0)
	raw, err := os.ReadFile(filepath.Join(dir, file(0)))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, file(1)), raw)
	whole("all tensors in both shards")
	changed := slices.Clone(raw)
	changed[len(changed)-1] ^= 1
	write(t, filepath.Join(dir, file(1)), changed)
	if _, _, err := open(t, dir); !errors.Is(err, hf.ErrConfig) || !strings.Contains(err.Error(), "is another than in") {
		t.Errorf("two copies that differ: %v", err)
	}
	os.Remove(index)
	os.Remove(filepath.Join(dir, file(1)))
	if _, _, err := open(t, dir); !errors.Is(err, hf.ErrNoWeights) || !strings.Contains(err.Error(), "number 2 is missing") {
		t.Errorf("half a set: %v", err)
	}
	write(t, filepath.Join(dir, "other-00001-of-00001.safetensors"), raw)
	if _, _, err := open(t, dir); !errors.Is(err, hf.ErrNoWeights) || !strings.Contains(err.Error(), "two sets") {
		t.Errorf("two sets: %v", err)
	}
}

// TestHubCache opens a folder of links as Hugging Face's own cache has it.
func TestHubCache(t *testing.T) {
	real := hftest.Folder(t, tiny, tinyTensors())
	repo := t.TempDir()
	blobs, snapshot := filepath.Join(repo, "blobs"), filepath.Join(repo, "snapshots", "abc")
	for _, d := range []string{blobs, snapshot} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"config.json", "model.safetensors"} {
		blob := fmt.Sprintf("%064d", i)
		if err := os.Rename(filepath.Join(real, name), filepath.Join(blobs, blob)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..", "..", "blobs", blob), filepath.Join(snapshot, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := open(t, snapshot); err != nil {
		t.Error(err)
	}
}

// TestBadCorpus opens the shared corpus: what this package owns must be refused with one of the words it asks for, and what
// is well must open. Cases of the tokenizer and of values found at the first token are others' to refuse.
func TestBadCorpus(t *testing.T) {
	root := shared(t, "data", "bad")
	text, err := os.ReadFile(filepath.Join(root, "manifest.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var c struct {
			File, Kind, Expect, By string
			Mention                []string
			Make                   []any
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		if c.Kind != "hf" || strings.HasPrefix(c.File, "tok_") || c.By != "load" {
			continue
		}
		t.Run(c.File, func(t *testing.T) {
			_, _, err := open(t, filepath.Join(root, c.File))
			if (err != nil) != (c.Expect == "error") {
				t.Fatalf("error %v, want %s", err, c.Expect)
			}
			got := strings.ToLower(fmt.Sprint(err))
			if err != nil && !slices.ContainsFunc(c.Mention, func(w string) bool { return strings.Contains(got, strings.ToLower(w)) }) {
				t.Errorf("error %v mentions none of %v", err, c.Mention)
			}
		})
	}
}
