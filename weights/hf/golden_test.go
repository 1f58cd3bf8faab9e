package hf_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"terrace/weights/hf"
	"terrace/weights/hf/hftest"
)

// shared finds a folder of the material shared beside the repository.
func shared(t *testing.T, parts ...string) string {
	t.Helper()
	root := os.Getenv("TERRACE_SHARED")
	for dir := "."; root == ""; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			root = filepath.Join(dir, "..", "shared")
		} else if abs, _ := filepath.Abs(dir); abs == filepath.Dir(abs) {
			t.Skip("no go.mod above the test")
		}
	}
	path := filepath.Join(append([]string{root}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there (set TERRACE_SHARED)", path)
	}
	return path
}

// golden is what Hugging Face computed for one model.
type golden struct {
	ids, greedy, cached []int
	logits              []float32 // [len(ids), vocab]
}

// readGolden reads golden.safetensors by its plain definition (it holds I64, which models do not).
func readGolden(t *testing.T, path string) golden {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	data := func(name string) []byte { o := header[name].Offsets; return b[8+int(n):][o[0]:o[1]] }
	ints := func(name string) (out []int) {
		for d := data(name); len(d) > 0; d = d[8:] {
			out = append(out, int(binary.LittleEndian.Uint64(d)))
		}
		return out
	}
	g := golden{ids: ints("input_ids"), greedy: ints("greedy_ids"), cached: ints("greedy_ids_cached")}
	for d := data("logits"); len(d) > 0; d = d[4:] {
		g.logits = append(g.logits, math.Float32frombits(binary.LittleEndian.Uint32(d)))
	}
	return g
}

// TestGolden proves that metadata and tensors mean what Hugging Face means: the slow forward pass over them gives its logits
// and first greedy ids for every model of the goldens (package model's tests go through all of them).
func TestGolden(t *testing.T) {
	root := shared(t, "data", "golden", "tiny_hf")
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	models := 0
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		models++
		t.Run(d.Name(), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(root, d.Name())
			g := readGolden(t, filepath.Join(dir, "golden.safetensors"))
			meta, tensors, closer, err := hf.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer closer.Close()
			m, err := hftest.New(meta, tensors)
			if err != nil {
				t.Fatal(err)
			}
			if off := worst(m.Logits(g.ids, 0), g.logits); off > 5e-5 {
				t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 5e-5", off)
			}
			const steps = 5
			g.greedy, g.cached = g.greedy[:steps], g.cached[:steps]
			if got := m.Greedy(g.ids, steps, false); !slices.Equal(got, g.greedy) {
				t.Errorf("greedy ids %v, want %v", got, g.greedy)
			}
			if slices.Equal(g.greedy, g.cached) {
				return
			}
			if got := m.Greedy(g.ids, steps, true); !slices.Equal(got, g.cached) {
				t.Errorf("greedy ids with a cache %v, want %v", got, g.cached)
			}
		})
	}
	if models < 23 {
		t.Errorf("%d models in %s, want at least 23", models, root)
	}
}

// worst is max |got − want| / max |want|.
func worst(got [][]float64, want []float32) float64 {
	off, top, vocab := 0.0, 0.0, len(want)/len(got)
	for p := range got {
		for i, x := range got[p] {
			w := float64(want[p*vocab+i])
			off, top = max(off, math.Abs(x-w)), max(top, math.Abs(w))
		}
	}
	return off / top
}
