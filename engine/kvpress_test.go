package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"terrace/attention"
	"terrace/engine/filters"
	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/policy"
	"terrace/weights"
	"terrace/weights/convert"
)

// kvpressCases are what testdata/kvpress/make.py has kvpress do on a random llama.
type kvpressCases struct {
	IDs    []int       `json:"ids"`
	Forced []int       `json:"forced"`
	Full   [][]float64 `json:"full"`
	Cases  []struct {
		Policy string            `json:"policy"`
		Kept   map[string]string `json:"kept"` // layer/head → one bit a position
		Zero   map[string]string `json:"zero"` // one bit a channel of the keys
		Logits [][]float64       `json:"logits"`
	} `json:"cases"`
}

// TestKVPress: on every layer and KV head of every case the same positions stay as under kvpress and the same channels
// become 0, and the logits of the steps behind are within 1e-4 of the largest.
func TestKVPress(t *testing.T) {
	t.Parallel()
	var all kvpressCases
	raw, err := os.ReadFile(filepath.Join("testdata", "kvpress", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &all); err != nil || len(all.Cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	m := openFile(t, filepath.Join("testdata", "kvpress", "model"))
	trained := map[string]*policy.Filters{}
	for _, file := range []string{"filters/model", "kvzap/linear", "kvzap/mlp", "kvzap/gates"} {
		file = "testdata/kvpress/" + file + ".safetensors"
		if trained[file], err = filters.Read(filepath.FromSlash(file)); err != nil {
			t.Fatal(err)
		}
	}
	heads, moved := 0, 0
	for _, c := range all.Cases {
		e, err := Open(m, Options{Exact: true, Threads: 1, Policy: c.Policy, Filters: trained})
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(t.Context(), all.IDs, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		for layer := range m.Layers {
			for g := range m.Layer[0].KVHeads {
				want := bits(t, c.Kept[fmt.Sprintf("%d/%d", layer, g)])
				if got := s.Positions(layer, g); !slices.Equal(got, want) {
					t.Errorf("%s: layer %d, head %d keeps %v, want %v", c.Policy, layer, g, got, want)
				}
				heads++
				if got, want := zeroChannels(s, layer, g), bits(t, c.Zero[fmt.Sprintf("%d/%d", layer, g)]); !slices.Equal(got, want) {
					t.Errorf("%s: layer %d, head %d has no channels %v, want %v", c.Policy, layer, g, got, want)
				}
			}
		}
		for i, id := range all.Forced {
			if err := s.Decode(id); err != nil {
				t.Fatal(err)
			}
			if off := furthest(s.Logits(), c.Logits[i]); off > 1e-4 {
				t.Errorf("%s: logits of step %d are off by %.2g of the largest", c.Policy, i, off)
			}
			if furthest(s.Logits(), all.Full[i]) > 1e-2 {
				moved++
			}
		}
		s.Close()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if steps := len(all.Cases) * len(all.Forced); moved < steps*3/4 {
		t.Errorf("the logits of %d of %d steps differ from those of the whole cache: the cases show too little", moved, steps)
	}
	t.Logf("%d cases: %d selections of a layer and KV head compared", len(all.Cases), heads)
}

// TestQFilterOnGGUF: a GGUF file of the same model, where the numbers of a key that rotate together are neighbours, keeps the same.
func TestQFilterOnGGUF(t *testing.T) {
	t.Parallel()
	const file = "testdata/kvpress/filters/model.safetensors"
	f, err := filters.Read(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join("testdata", "kvpress", "model", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	words := map[string]int{} // GGUF files have a vocabulary
	for id := range 224 {
		words[string(rune(0x100+id))] = id
	}
	vocab, err := json.Marshal(map[string]any{"model": map[string]any{"type": "BPE", "vocab": words, "merges": []string{}}, "pre_tokenizer": map[string]any{"type": "ByteLevel"}, "decoder": map[string]any{"type": "ByteLevel"}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "tokenizer.json"), vocab, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	folder, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := convert.Quantize(t.Context(), folder, path, convert.Options{Type: quant.F32}); err != nil {
		t.Fatal(err)
	}
	var kept [2][]int32
	ids := make([]int, 100) // each another
	for i := range ids {
		ids[i] = (37*i + 5) % 221
	}
	for i, m := range []*model.Model{openFile(t, folder.Path()), openFile(t, path)} {
		if interlaced := i == 1; m.Ropes[0].Interlaced != interlaced {
			t.Fatalf("model %d: pairs are neighbours: %v", i, !interlaced)
		}
		e := openOn(t, m, Options{Exact: true, Threads: 1, Policy: "qfilter:filters=@" + file, Filters: map[string]*policy.Filters{file: f}})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), ids, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		for layer := range m.Layers {
			for g := range m.Layer[0].KVHeads {
				kept[i] = append(kept[i], s.Positions(layer, g)...)
			}
		}
	}
	if !slices.Equal(kept[0], kept[1]) || len(kept[0]) != 50*6 {
		t.Errorf("the folder keeps %v, the GGUF file %v", kept[0], kept[1])
	}
}

// bits are the numbers of the bits set in a hexadecimal number.
func bits(t *testing.T, hex string) (out []int32) {
	t.Helper()
	if hex == "" {
		return nil
	}
	n, ok := new(big.Int).SetString(hex, 16)
	if !ok {
		t.Fatalf("%q is no hexadecimal number", hex)
	}
	for i := range n.BitLen() {
		if n.Bit(i) == 1 {
			out = append(out, int32(i))
		}
	}
	return out
}

// zeroChannels are the channels that no key of a layer and KV head has.
func zeroChannels(s *Session, layer, g int) (out []int32) {
	var r attention.Reader
	view, dim := s.Sequence().Views(layer)[g], s.e.m.Layer[0].KeyDim
	keys := make([]float32, view.Tokens()*dim)
	r.Keys(&view, 0, view.Tokens(), keys)
	for d := range dim {
		zero := true
		for at := d; at < len(keys); at += dim {
			zero = zero && keys[at] == 0
		}
		if zero {
			out = append(out, int32(d))
		}
	}
	return out
}

// furthest is the largest difference from every fourth logit, as a part of the largest.
func furthest(got []float32, want []float64) float64 {
	var off, top float64
	for i, w := range want {
		off, top = max(off, math.Abs(float64(got[4*i])-w)), max(top, math.Abs(w))
	}
	return off / top
}
