package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/gguf"
	"terrace/weights/vocab"
)

const tinyFile = "../gguf/testdata/tiny.gguf"

func open(t *testing.T, path string) *weights.Model {
	t.Helper()
	m, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// quantized converts a model and opens the result, with the notices.
func quantized(t *testing.T, src string, kind quant.Type) (*weights.Model, []string) {
	t.Helper()
	var notices []string
	var done, total int64
	dst := filepath.Join(t.TempDir(), "out.gguf")
	err := Quantize(t.Context(), open(t, src), dst, Options{Type: kind,
		Progress: func(d, n int64) { done, total = d, n }, Notice: func(text string) { notices = append(notices, text) }})
	if err != nil {
		t.Fatal(err)
	}
	if done != total || total == 0 {
		t.Errorf("progress ended at %d of %d", done, total)
	}
	return open(t, dst), notices
}

func values(t *testing.T, m *weights.Model, name string) []float32 {
	t.Helper()
	x, err := m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, x.Rows()*x.Cols())
	quant.Dequantize(x.Type, out, b)
	return out
}

// TestQuantizeEveryType: matrices get the type (or the stated one that fits their rows of 32), vectors stay F32, values stay
// within the type's error, all metadata survives.
func TestQuantizeEveryType(t *testing.T) {
	src := open(t, tinyFile)
	want := map[quant.Type]struct {
		kind  quant.Type
		error float64 // relative root mean square
	}{
		quant.F32: {quant.F32, 0}, quant.F16: {quant.F16, 3e-4}, quant.BF16: {quant.BF16, 2e-3}, quant.Q8_0: {quant.Q8_0, 0.01},
		quant.Q4_0: {quant.Q4_0, 0.12}, quant.Q4_1: {quant.Q4_1, 0.1}, quant.Q5_0: {quant.Q5_0, 0.06}, quant.Q5_1: {quant.Q5_1, 0.05},
		quant.Q4_K: {quant.Q5_0, 0.06}, quant.Q5_K: {quant.Q5_1, 0.05}, quant.Q6_K: {quant.Q8_0, 0.01},
	}
	for kind, w := range want {
		t.Run(kind.String(), func(t *testing.T) {
			m, notices := quantized(t, tinyFile, kind)
			if (kind != w.kind) != (len(notices) == 1 && strings.Contains(notices[0], w.kind.String())) {
				t.Errorf("notices %q", notices)
			}
			if n, err := m.Meta().Int("general.file_type"); err != nil || uint32(n) != fileTypes[kind] {
				t.Errorf("file_type %d, %v", n, err)
			}
			for _, key := range src.Meta().Keys() {
				if key != "general.file_type" && !m.Meta().Has(key) && key != "general.alignment" {
					t.Errorf("key %q is lost", key)
				}
			}
			for _, x := range m.Tensors() {
				before := values(t, src, x.Name)
				after := values(t, m, x.Name)
				if len(x.Shape) == 1 && x.Type != quant.F32 || len(x.Shape) == 2 && x.Type != w.kind {
					t.Errorf("tensor %q is %s", x.Name, x.Type)
				}
				if e := relative(before, after); e > w.error || len(x.Shape) == 1 && e != 0 {
					t.Errorf("tensor %q: relative error %g, want at most %g", x.Name, e, w.error)
				}
			}
		})
	}
}

func relative(want, got []float32) float64 {
	off, all := 0.0, 0.0
	for i, w := range want {
		off += math.Pow(float64(got[i]-w), 2)
		all += float64(w) * float64(w)
	}
	return math.Sqrt(off / all)
}

// TestRequantize says that it quantises what is quantised, and copies blocks that keep their type.
func TestRequantize(t *testing.T) {
	q8, _ := quantized(t, tinyFile, quant.Q8_0)
	same, notices := quantized(t, q8.Path(), quant.Q8_0)
	if len(notices) != 0 {
		t.Errorf("notices of a copy: %q", notices)
	}
	for _, x := range same.Tensors() {
		y, err := q8.Tensor(x.Name)
		if err != nil || !bytes.Equal(x.Raw(), y.Raw()) {
			t.Errorf("tensor %q changed: %v", x.Name, err)
		}
	}
	if _, notices = quantized(t, q8.Path(), quant.Q4_0); len(notices) != 1 || !strings.Contains(notices[0], "again") {
		t.Errorf("notices of Q8_0 to Q4_0: %q", notices)
	}
}

// permuted is llama.cpp's permutation as its converter writes it: reshape to [heads, 2, d/2], swap the last two axes.
func permuted(rows [][]float32, heads int) [][]float32 {
	d := len(rows) / heads
	var out [][]float32
	for h := range heads {
		for i := range d / 2 {
			for half := range 2 {
				out = append(out, rows[h*d+half*(d/2)+i])
			}
		}
	}
	return out
}

// TestFolder writes a safetensors folder as GGUF: q and k rows are permuted as llama.cpp wants them, the rest is as it was,
// and the vocabulary is there.
func TestFolder(t *testing.T) {
	for _, name := range []string{"llama_gqa", "llama_mha_bias", "qwen2"} {
		t.Run(name, func(t *testing.T) {
			dir := shared(t, "data", "golden", "tiny_hf", name)
			src := open(t, dir)
			m, _ := quantized(t, dir, quant.F32)
			arch, err := m.Meta().String("general.architecture")
			if err != nil || m.Meta().Has(layoutKey) {
				t.Fatalf("architecture %q, %v; layout key kept: %v", arch, err, m.Meta().Has(layoutKey))
			}
			for _, x := range m.Tensors() {
				before, after := values(t, src, x.Name), values(t, m, x.Name)
				if arch == "llama" && rotated.MatchString(x.Name) {
					key := map[bool]string{true: ".attention.head_count", false: ".attention.head_count_kv"}[strings.Contains(x.Name, "attn_q")]
					heads, err := m.Meta().Int(arch + key)
					if err != nil {
						t.Fatal(err)
					}
					width := len(before) / x.Shape[0]
					before = slices.Concat(permuted(slices.Collect(slices.Chunk(before, width)), heads)...)
				}
				if !slices.Equal(before, after) {
					t.Errorf("tensor %q %v differs", x.Name, x.Shape)
				}
			}
			checkVocabulary(t, dir, m)
		})
	}
}

// checkVocabulary encodes with the folder's tokenizer and with the written one.
func checkVocabulary(t *testing.T, dir string, m *weights.Model) {
	t.Helper()
	var ids [2][]int
	for i, from := range []string{dir, ""} {
		v, err := vocab.FromModel(m.Meta(), from)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.New(v)
		if err != nil {
			t.Fatal(err)
		}
		if ids[i], err = tok.Encode("Hello, wörld 123 it's\n\n", true, false); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(ids[0], ids[1]) || len(ids[0]) == 0 {
		t.Errorf("ids %v from the folder, %v from the file", ids[0], ids[1])
	}
}

// TestFailuresLeaveNothing: whatever goes wrong, no file appears under the name or beside it.
func TestFailuresLeaveNothing(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	big := model(t, []float32{1, 2, 3, 1e6}, quant.F32)
	nan := model(t, []float32{1, 2, 3, float32(math.NaN())}, quant.F32)
	cases := map[string]struct {
		ctx  context.Context
		src  string
		kind quant.Type
		want error
	}{
		"cancelled":       {cancelled, tinyFile, quant.F16, context.Canceled},
		"NaN":             {t.Context(), nan, quant.F16, gguf.ErrNotFinite},
		"NaN copied":      {t.Context(), nan, quant.F32, gguf.ErrNotFinite},
		"too large":       {t.Context(), big, quant.F16, ErrRange},
		"type unwritable": {t.Context(), tinyFile, quant.MXFP4, ErrType},
		"type unknown":    {t.Context(), tinyFile, 4, ErrType},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := Quantize(c.ctx, open(t, c.src), filepath.Join(dir, "out.gguf"), Options{Type: c.kind})
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
	if err := Quantize(t.Context(), open(t, tinyFile), filepath.Join(t.TempDir(), "no", "out.gguf"), Options{Type: quant.F16}); err == nil {
		t.Error("wrote into a folder that is not there")
	}
}

// TestValueThatDoesNotFit: what does not fit a block's scale is named itself, and nothing overflows in silence.
func TestValueThatDoesNotFit(t *testing.T) {
	for _, kind := range []quant.Type{quant.Q8_0, quant.Q4_0, quant.Q5_1, quant.IQ4_NL, quant.Q6_K, quant.Q5_K, quant.Q4_K, quant.Q3_K, quant.IQ4_XS} {
		for _, v := range []float32{-3e38, 2e9} {
			row := make([]float32, 512)
			for i := range row {
				row[i] = float32(i%7) / 100
			}
			row[300] = v
			err := Quantize(t.Context(), open(t, model(t, row, quant.F32)), filepath.Join(t.TempDir(), "out.gguf"), Options{Type: kind})
			if want := fmt.Sprintf("the value %g does not fit %s", v, kind); !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

// model writes a GGUF file with one matrix of a row.
func model(t *testing.T, row []float32, kind quant.Type) string {
	t.Helper()
	meta := &gguf.Meta{}
	meta.Set("general.architecture", "test")
	path := filepath.Join(t.TempDir(), "m.gguf")
	info := gguf.Info{Name: "m.weight", Type: kind, Shape: []int{1, len(row)}}
	err := create(t.Context(), path, meta, []gguf.Info{info}, Options{}, func(w *writer) error {
		blocks := make([]byte, kind.RowBytes(len(row)))
		if err := quant.Quantize(kind, blocks, row); err != nil {
			return err
		}
		_, err := w.out.Write(blocks)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInPlace replaces the file that is being read.
func TestInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	data, err := os.ReadFile(tinyFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Quantize(t.Context(), open(t, path), path, Options{Type: quant.F16}); err != nil {
		t.Fatal(err)
	}
	if x, err := open(t, path).Tensor("blk.0.attn_q.weight"); err != nil || x.Type != quant.F16 {
		t.Errorf("after writing in place: %v", err)
	}
}

// TestSourceCut: a source that is cut while it is read is an error.
func TestSourceCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	data, err := os.ReadFile(tinyFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	src := open(t, path)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := Quantize(t.Context(), src, path+".out", Options{Type: quant.F16}); !errors.Is(err, weights.ErrFileChanged) {
		t.Errorf("error %v, want ErrFileChanged", err)
	}
}

// TestOrderOfHybrids: a layer's rows are ordered by its own heads, where others have none.
func TestOrderOfHybrids(t *testing.T) {
	m := &gguf.Meta{}
	m.Set(layoutKey, "neox")
	m.Set("general.architecture", "granitehybrid")
	m.Set("granitehybrid.attention.head_count", 4)
	m.Set("granitehybrid.attention.head_count_kv", []int32{0, 2, 0, 1})
	for layer, want := range map[int][]int{1: {0, 2, 1, 3, 4, 6, 5, 7}, 3: {0, 4, 1, 5, 2, 6, 3, 7}} {
		orders, err := ordersFor(m, []*gguf.Tensor{gguf.NewTensor(fmt.Sprintf("blk.%d.attn_k.weight", layer), quant.F32, []int{8, 2}, nil)})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]int, len(want))
		for row := range got {
			got[row] = orders[0](row)
		}
		if !slices.Equal(got, want) {
			t.Errorf("layer %d: rows %d, want %d", layer, got, want)
		}
	}
}

func TestOrderRefusals(t *testing.T) {
	tensors := []*gguf.Tensor{gguf.NewTensor("blk.0.attn_q.weight", quant.F32, []int{6, 2}, nil), gguf.NewTensor("blk.0.attn_k.weight", quant.F32, []int{4, 2}, nil)}
	for name, change := range map[string]func(m *gguf.Meta){
		"layout": func(m *gguf.Meta) { m.Set(layoutKey, "norm") },
		"arch":   func(m *gguf.Meta) { m.Delete("general.architecture") },
		"heads":  func(m *gguf.Meta) { m.Delete("llama.attention.head_count") },
		"kv":     func(m *gguf.Meta) { m.Delete("llama.attention.head_count_kv") },
		"none":   func(m *gguf.Meta) { m.Set("llama.attention.head_count_kv", []int32{0}) },
		"short":  func(m *gguf.Meta) { m.Set("llama.attention.head_count_kv", []int32{}) },
		"odd":    func(m *gguf.Meta) {},
	} {
		m := &gguf.Meta{}
		m.Set(layoutKey, "neox")
		m.Set("general.architecture", "llama")
		m.Set("llama.attention.head_count", 2)
		m.Set("llama.attention.head_count_kv", 2)
		change(m)
		if _, err := ordersFor(m, tensors); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
