package model_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/weights/gguf"
)

// llamaCase is a golden's GGUF file with edits, and logits that llama.cpp gives for it.
type llamaCase struct {
	Name, Model string
	Arch        string                       // replaces the file's
	Set         map[string][]json.RawMessage // type and value of a key, without the architecture
	Fuse        bool                         // q, k and v of a layer in one tensor
	Without     []string                     // ends of names of tensors that are left out
	IDs         []int
	Largest     float64              // of all logits
	Logits      map[string][]float64 // by row, the first of the vocabulary
	Tolerance   float64              // of the largest; 0 = 1e-4
}

func openSource(t *testing.T, path string) source {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return source{f.Meta(), f.Tensors()}
}

// TestLlamaCpp compares GGUF files of other options than the goldens have with llama.cpp.
func TestLlamaCpp(t *testing.T) {
	root := shared(t, "data", "golden")
	raw, err := os.ReadFile("testdata/llamacpp.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Cases []llamaCase }
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Cases) < 18 {
		t.Fatalf("%d cases, want 18 or more", len(all.Cases))
	}
	for _, c := range all.Cases {
		t.Run(c.Name, func(t *testing.T) {
			src := c.edit(t, openSource(t, filepath.Join(root, c.Model)))
			r := newRunner(t, src.write(t))
			got := r.pass(c.IDs, len(c.IDs))
			off := 0.0
			for row, want := range c.Logits {
				i, err := strconv.Atoi(row)
				if err != nil || len(want) == 0 {
					t.Fatalf("row %q of %d logits (%v)", row, len(want), err)
				}
				for j, w := range want {
					off = max(off, math.Abs(float64(got[i][j])-w))
				}
			}
			if tolerance := max(c.Tolerance, 1e-4); len(c.Logits) != 3 || !(off <= tolerance*c.Largest) {
				t.Errorf("max |Δlogit| of %d rows is %.2g of the largest logit, want at most %g", len(c.Logits), off/c.Largest, tolerance)
			}
		})
	}
}

// edit applies a case's changes to a file.
func (c *llamaCase) edit(t *testing.T, from source) source {
	t.Helper()
	arch, err := from.meta.String("general.architecture")
	if err != nil {
		t.Fatal(err)
	}
	s := from.with(nil, "")
	if c.Arch != "" {
		for _, key := range s.meta.Keys() {
			if name, ok := strings.CutPrefix(key, arch+"."); ok {
				renameKey(t, s.meta, key, c.Arch+"."+name)
			}
		}
		arch = c.Arch
		s.meta.Set("general.architecture", arch)
	}
	for key, value := range c.Set {
		s.meta.Set(arch+"."+key, caseValue(t, value))
	}
	for _, end := range c.Without {
		s.tensors = slices.DeleteFunc(s.tensors, func(x *gguf.Tensor) bool { return strings.HasSuffix(x.Name, "."+end) })
	}
	if c.Fuse {
		s.tensors = fuseQKV(t, s.tensors)
	}
	return s
}

// renameKey gives a key of one number another name.
func renameKey(t *testing.T, m *gguf.Meta, from, to string) {
	t.Helper()
	if n, err := m.Int(from); err == nil {
		m.Set(to, uint32(n))
	} else if f, err := m.Float(from); err == nil {
		m.Set(to, float32(f))
	} else if list, err := m.Floats(from); err == nil {
		m.Set(to, list)
	} else {
		t.Fatalf("key %q is no number", from)
	}
	m.Delete(from)
}

// caseValue is a value of a case in its type.
func caseValue(t *testing.T, value []json.RawMessage) any {
	t.Helper()
	var kind string
	if err := json.Unmarshal(value[0], &kind); err != nil {
		t.Fatal(err)
	}
	last := value[len(value)-1]
	read := func(to any) {
		if err := json.Unmarshal(last, to); err != nil {
			t.Fatal(err)
		}
	}
	switch kind {
	case "str":
		var s string
		read(&s)
		return s
	case "f32":
		var f float32
		read(&f)
		return f
	case "u32":
		var n uint32
		read(&n)
		return n
	case "bool":
		var b bool
		read(&b)
		return b
	case "arr":
		var list []int32
		read(&list)
		return list
	}
	t.Fatalf("type %q", kind)
	return nil
}

// fuseQKV puts the weights of q, k and v of each layer one behind another.
func fuseQKV(t *testing.T, tensors []*gguf.Tensor) (out []*gguf.Tensor) {
	t.Helper()
	byName := map[string]*gguf.Tensor{}
	for _, x := range tensors {
		byName[x.Name] = x
	}
	for _, x := range tensors {
		layer, isQ := strings.CutSuffix(x.Name, "attn_q.weight")
		if part := strings.NewReplacer("attn_k.weight", "attn_q.weight", "attn_v.weight", "attn_q.weight").Replace(x.Name); part != x.Name && byName[part] != nil {
			continue // went with q
		}
		k, v := byName[layer+"attn_k.weight"], byName[layer+"attn_v.weight"]
		if !isQ || k == nil || v == nil {
			out = append(out, x)
			continue
		}
		rows, data := 0, []byte(nil)
		for _, part := range []*gguf.Tensor{x, k, v} {
			b, err := part.Bytes()
			if err != nil || part.Type != x.Type {
				t.Fatal(part.Name, part.Type, err)
			}
			rows, data = rows+part.Shape[0], append(data, b...)
		}
		out = append(out, gguf.NewTensor(layer+"attn_qkv.weight", x.Type, []int{rows, x.Shape[1]}, func() ([]byte, error) { return data, nil }))
	}
	return out
}

// ones is a tensor of n ones.
func ones(name string, n int) *gguf.Tensor {
	data := make([]byte, 4*n)
	for i := range n {
		data[4*i+2], data[4*i+3] = 0x80, 0x3f
	}
	return gguf.NewTensor(name, quant.F32, []int{n}, func() ([]byte, error) { return data, nil })
}

// TestUnreadTensor adds a tensor to a file: what the architecture has no use for is refused by its name, what changes nothing is not.
func TestUnreadTensor(t *testing.T) {
	src := openSource(t, filepath.Join(shared(t, "data", "golden", "families"), "qwen2_moe", "model.gguf"))
	for name, taken := range map[string]bool{
		"blk.0.attn_q_norm.weight": false, "blk.1.attn_q.scale": false, "rope_freqs_swa.weight": false, "blk.0.foo": false,
		"blk.0.attn_q.input_scale": true, "v.blk.0.attn_q.weight": true, "mm.0.weight": true, "cls.output.weight": true,
		"vision.unused.weight": true, "blk.99.leftover.weight": true, "output.foo": false,
	} {
		with := source{src.meta, append(slices.Clone(src.tensors), ones(name, 8))}
		switch err := openFile(with.write(t)); {
		case taken && err != nil:
			t.Errorf("with %s: %v", name, err)
		case !taken && (!errors.Is(err, model.ErrFeature) || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) || strings.Contains(err.Error(), "more")):
			t.Errorf("with %s: error %v, want ErrFeature and the name", name, err)
		}
	}
	two := source{src.meta, append(slices.Clone(src.tensors), ones("blk.0.x", 8), ones("blk.1.x", 8))}
	if err := openFile(two.write(t)); err == nil || !strings.Contains(err.Error(), `"blk.0.x" and 1 more`) {
		t.Errorf("error %v, want one with the first name and how many more", err)
	}
}

// TestFurtherLayers adds a layer that guesses further tokens to files, which have it in lists by layer too: nothing changes.
func TestFurtherLayers(t *testing.T) {
	root := shared(t, "data", "golden", "families")
	for _, name := range []string{"glm4", "qwen3_5"} {
		t.Run(name, func(t *testing.T) {
			src := openSource(t, filepath.Join(root, name, "model.gguf"))
			ids := []int{5, 80, 200, 7, 7, 100}
			want := newRunner(t, src.write(t)).pass(ids, len(ids))
			arch, _ := src.meta.String("general.architecture")
			layers, err := src.meta.Int(arch + ".block_count")
			if err != nil {
				t.Fatal(err)
			}
			more := src.with(map[string]any{arch + ".block_count": uint32(layers + 1), arch + ".nextn_predict_layers": uint32(1)}, "")
			for _, key := range []string{"attention.head_count", "attention.head_count_kv", "feed_forward_length"} {
				n, err := src.meta.Int(arch + "." + key)
				if err != nil {
					t.Fatal(err)
				}
				list := slices.Repeat([]int32{int32(n)}, layers)
				more.meta.Set(arch+"."+key, append(list, 3))
			}
			more.tensors = append(slices.Clone(more.tensors), ones(fmt.Sprintf("blk.%d.nextn.eh_proj.weight", layers), 8))
			if off := worst(newRunner(t, more.write(t)).pass(ids, len(ids)), want); off != 0 {
				t.Errorf("logits are off by %g", off)
			}
		})
	}
}

// TestApertusKeys reads Apertus' activation from keys without the architecture's name, as llama.cpp's converter writes them.
func TestApertusKeys(t *testing.T) {
	dir := filepath.Join(shared(t, "data", "golden", "families"), "apertus")
	g := readGolden(t, filepath.Join(dir, "golden.safetensors"))
	src := folderSource(t, dir)
	for _, key := range []string{"alpha_p", "alpha_n", "beta", "eps"} {
		renameKey(t, src.meta, "apertus.xielu."+key, "xielu."+key)
	}
	r := newRunner(t, src.write(t))
	ids := g.ints("input_ids")
	if off := worst(r.pass(ids, len(ids)), g.rows("logits", r.m.Vocab)); off > 2e-4 {
		t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
	}
	src.meta.Delete("xielu.beta")
	if err := openFile(src.write(t)); err == nil || !strings.Contains(err.Error(), "xielu.beta") {
		t.Errorf("error %v, want one with the key", err)
	}
}

// TestStableLMResidual: a file with use_parallel_residual has its blocks one after the other where it has the second's norm.
func TestStableLMResidual(t *testing.T) {
	dir := filepath.Join(shared(t, "data", "golden", "families"), "stablelm")
	g := readGolden(t, filepath.Join(dir, "golden.safetensors"))
	src := folderSource(t, dir)
	src.meta.Set("stablelm.use_parallel_residual", true)
	r := newRunner(t, src.write(t))
	ids := g.ints("input_ids")
	if off := worst(r.pass(ids, len(ids)), g.rows("logits", r.m.Vocab)); off > 2e-4 || r.m.Parallel {
		t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-4 (parallel: %v)", off, r.m.Parallel)
	}
}
