package model_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/model"
	"terrace/weights"
	"terrace/weights/gguf"
	"terrace/weights/hf"
	"terrace/weights/hf/hftest"
)

// source is a model as a folder shows it, to be changed and written as a GGUF file.
type source struct {
	meta    *gguf.Meta
	tensors []*gguf.Tensor
}

func newSource(t *testing.T, c hftest.Config, shapes hftest.Shapes) source {
	t.Helper()
	return folderSource(t, hftest.Folder(t, c, shapes))
}

func folderSource(t *testing.T, dir string) source {
	t.Helper()
	meta, tensors, closer, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closer.Close() })
	return source{meta, tensors}
}

// with sets or (nil) deletes metadata, and drops the named tensor.
func (s source) with(change map[string]any, drop string) source {
	meta := s.meta.Clone()
	for key, value := range change {
		if value == nil {
			meta.Delete(key)
		} else {
			meta.Set(key, value)
		}
	}
	tensors := slices.DeleteFunc(slices.Clone(s.tensors), func(x *gguf.Tensor) bool { return x.Name == drop })
	return source{meta, tensors}
}

// write makes a GGUF file of it.
func (s source) write(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var infos []gguf.Info
	for _, x := range s.tensors {
		infos = append(infos, gguf.Info{Name: x.Name, Type: x.Type, Shape: x.Shape})
	}
	w, err := gguf.NewWriter(f, s.meta, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range s.tensors {
		b, err := x.Bytes()
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func openFile(path string) error {
	file, err := weights.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = model.Open(file)
	return err
}

// TestBadMetadata changes one key of a good file; the error must have the sentinel and name the key, and come before
// anything is sized by the figure.
func TestBadMetadata(t *testing.T) {
	type change = map[string]any
	llama := newSource(t, hftest.Llama(), hftest.Decoder(hftest.Llama()))
	moe := hftest.Llama().With(hftest.Config{"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 1})
	moeShapes := hftest.Decoder(moe)
	for l := range 2 {
		p := fmt.Sprintf("model.layers.%d.block_sparse_moe.", l)
		moeShapes[p+"gate.weight"] = []int{2, 16}
		for _, name := range []string{"w1", "w2", "w3"} {
			shape := map[string][]int{"w1": {24, 16}, "w2": {16, 24}, "w3": {24, 16}}[name]
			moeShapes.EachLayer(p+"experts.%d.", 2, name+".weight", shape...)
		}
	}
	mixtral := newSource(t, moe, moeShapes)
	optConfig, optShapes := hftest.OPT(16, false)
	opt := newSource(t, optConfig, optShapes)
	yarn := func(extra change) change {
		c := change{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(2)}
		for k, v := range extra {
			c[k] = v
		}
		return c
	}
	for _, c := range []struct {
		from   source
		change change
		want   string
	}{
		{llama, change{"llama.attention.head_count": uint32(0)}, "head_count"},
		{llama, change{"llama.attention.head_count": uint32(1 << 30)}, "head_count"},
		{llama, change{"llama.attention.head_count": "2"}, "head_count"},
		{llama, change{"llama.attention.head_count": []int32{2, 4}}, "head_count"},
		{llama, change{"llama.attention.head_count": []int32{2}}, "head_count\" has 1 values"},
		{llama, change{"llama.attention.head_count_kv": []int32{1, 1, 1}}, "head_count_kv\" has 3 values"},
		{llama, change{"llama.attention.head_count_kv": []int32{}}, "head_count_kv\" has 0 values"},
		{llama, change{"llama.feed_forward_length": []int32{24, 25}}, "is 24 in layer 0 and 25 in layer 1"},
		{llama, change{"llama.feed_forward_length": []int32{24}}, "feed_forward_length\" has 1 values"},
		{llama, change{"llama.block_count": []int32{2, 2}}, "llama.block_count\": type is array of 2 int32, want an integer"},
		{llama, change{"llama.embedding_length": []int32{16, 16}}, "llama.embedding_length\": type is array of 2 int32, want an integer"},
		{llama, change{"llama.context_length": []int32{64, 64}}, "llama.context_length\": type is array of 2 int32, want an integer"},
		{llama, change{"llama.rope.dimension_count": []int32{8, 8}}, "llama.rope.dimension_count\": type is array of 2 int32, want an integer"},
		{llama, change{"llama.rope.dimension_count": uint32(4)}, "rotates whole heads"},
		{llama, change{"llama.attention.causal": false}, "llama.attention.causal"},
		{llama, change{"llama.attention.head_count_kv": uint32(3)}, "head_count"},
		{llama, change{"llama.attention.head_count_kv": uint32(0)}, "head_count_kv"},
		{llama, change{"llama.attention.key_length": uint32(1 << 20)}, "key_length"},
		{llama, change{"llama.embedding_length": nil}, "embedding_length"},
		{llama, change{"llama.embedding_length": uint32(32)}, "token_embd.weight"},
		{llama, change{"llama.feed_forward_length": uint32(25)}, "ffn_gate"},
		{llama, change{"llama.vocab_size": uint32(31)}, "vocab_size"},
		{llama, change{"llama.context_length": uint64(1) << 40}, "context_length"},
		{llama, change{"llama.attention.layer_norm_rms_epsilon": nil}, "layer_norm_rms_epsilon"},
		{llama, change{"llama.attention.layer_norm_rms_epsilon": float32(-1)}, "eps"},
		{llama, change{"llama.attention.layer_norm_rms_epsilon": float32(math.NaN())}, "eps"},
		{llama, change{"llama.rope.dimension_count": uint32(7)}, "dimension_count"},
		{llama, change{"llama.rope.dimension_count": uint32(10)}, "dimension_count"},
		{llama, change{"llama.rope.freq_base": float32(0)}, "freq_base"},
		{llama, change{"llama.rope.freq_base": float32(math.Inf(1))}, "freq_base"},
		{llama, change{"llama.rope.scaling.type": "spiral"}, "spiral"},
		{llama, change{"llama.rope.scaling.factor": float32(-2)}, "scaling.factor"},
		{llama, change{"llama.rope.scaling.type": "none", "llama.rope.scaling.attn_factor": float32(0)}, "attention factor"},
		{llama, change{"llama.rope.scale_linear": float32(-2)}, "scale_linear"},
		{llama, yarn(change{"llama.rope.scaling.factor": float32(-1)}), "scaling.factor"},
		{llama, yarn(change{"llama.rope.scaling.yarn_beta_fast": float32(0)}), "beta_fast"},
		{llama, yarn(change{"llama.rope.scaling.original_context_length": uint32(0)}), "original_context_length"},
		{llama, yarn(change{"llama.rope.scaling.attn_factor": float32(0)}), "attention factor"},
		{llama, yarn(change{"terrace.rope.scaling.truncate": "no"}), "truncate"},
		{llama, change{"llama.rope.scaling.type": "longrope"}, "rope_factors"},
		{llama, change{"terrace.rope.scaling.type": "dynamic"}, "terrace.rope.scaling.factor"},
		{llama, change{"terrace.rope.scaling.type": "dynamic", "terrace.rope.scaling.factor": float32(2), "terrace.rope.scaling.original_context_length": uint32(0)}, "dynamic"},
		{llama, change{"llama.attention.sliding_window": int32(-1)}, "sliding_window"},
		{llama, change{"llama.attention.sliding_window": uint32(4), "llama.attention.sliding_window_pattern": []int32{1}}, "sliding_window_pattern"},
		{llama, change{"llama.expert_count": uint32(2)}, "expert"},
		{llama, change{"terrace.activation": "cube"}, "cube"},
		{mixtral, change{"llama.expert_used_count": uint32(3)}, "expert_used_count"},
		{mixtral, change{"llama.expert_count": uint32(1 << 20)}, "expert_count"},
		{opt, change{"terrace.position_offset": uint32(1 << 20)}, "position_offset"},
		{opt, change{"opt.context_length": uint32(63)}, "position_embd"},
		{opt, change{"opt.attention.layer_norm_epsilon": "x"}, "layer_norm_epsilon"},
	} {
		t.Run(fmt.Sprint(c.change), func(t *testing.T) {
			err := openFile(c.from.with(c.change, "").write(t))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q in it", err, c.want)
			}
			if !errors.Is(err, model.ErrConfig) && !errors.Is(err, model.ErrFeature) && !errors.Is(err, weights.ErrFormat) && !errors.Is(err, weights.ErrMissingTensor) {
				t.Errorf("error %v wraps none of ErrConfig, ErrFeature, ErrFormat, ErrMissingTensor", err)
			}
		})
	}
	arrays := change{"llama.attention.head_count": []int32{2, 2}, "llama.attention.head_count_kv": []int32{1, 1}, "llama.feed_forward_length": []int32{24, 24}}
	for name, s := range map[string]source{"llama": llama, "mixtral": mixtral, "opt": opt, "llama with one value a layer": llama.with(arrays, ""),
		"a causal llama": llama.with(change{"llama.attention.causal": true}, "")} {
		if err := openFile(s.with(nil, "").write(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMissingTensor takes out each tensor of an architecture in turn: the error names it (the tensors' names hold the layer)
// and the file. What a model may lack is listed.
func TestMissingTensor(t *testing.T) {
	for name, build := range variants() {
		c, shapes := build()
		src := newSource(t, c, shapes)
		for _, x := range src.tensors {
			optional := x.Name == "output.weight" || strings.HasSuffix(x.Name, ".bias") ||
				strings.HasPrefix(x.Name, "project_") || strings.HasPrefix(x.Name, "rope_factors")
			if optional {
				continue
			}
			path := src.with(nil, x.Name).write(t)
			err := openFile(path)
			if !errors.Is(err, weights.ErrMissingTensor) && !errors.Is(err, model.ErrConfig) {
				t.Errorf("%s without %s: error %v", name, x.Name, err)
				continue
			}
			if !strings.Contains(err.Error(), x.Name) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s without %s: the error does not name tensor and file: %v", name, x.Name, err)
			}
		}
	}
}

// TestUnknownArchitecture names the architecture and lists the known ones.
func TestUnknownArchitecture(t *testing.T) {
	src := newSource(t, hftest.Llama(), hftest.Decoder(hftest.Llama()))
	err := openFile(src.with(map[string]any{"general.architecture": "banana"}, "").write(t))
	if !errors.Is(err, model.ErrUnknownArchitecture) {
		t.Fatalf("error %v", err)
	}
	for _, want := range append(model.Architectures(), "banana") {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}
