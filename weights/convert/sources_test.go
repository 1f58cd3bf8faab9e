package convert

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
	"terrace/weights/hf/hftest"
)

// TestReadOnlyTypesAsSources: matrices of types that are read and not written become what they stand for.
func TestReadOnlyTypesAsSources(t *testing.T) {
	for _, kind := range quant.Types() {
		if kind.Writable() || kind.Internal() {
			continue
		}
		path, want := sourceFile(t, kind)
		out, _ := quantized(t, path, quant.F32)
		got := values(t, out, "blk.0.ffn_up.weight")
		for i, v := range want {
			if got[i] != v {
				t.Fatalf("%s: value %d is %g, want %g", kind, i, got[i], v)
			}
		}
	}
}

// sourceFile writes a GGUF file with one matrix of random blocks, whose scales are finite.
func sourceFile(t *testing.T, kind quant.Type) (string, []float32) {
	t.Helper()
	const rows, cols = 5, 512
	rng, blocks := rand.New(rand.NewPCG(3, uint64(kind))), make([]byte, rows*kind.RowBytes(cols))
	for at := 0; at < len(blocks); at += kind.BlockBytes() {
		b := blocks[at : at+kind.BlockBytes()]
		for quant.CheckFinite(kind, b) >= 0 || allZero(b) {
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			if kind == quant.MXFP4 { // or values overflow
				b[0] &= 127
			}
		}
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	meta := &gguf.Meta{}
	meta.Set("general.architecture", "llama")
	w, err := gguf.NewWriter(f, meta, []gguf.Info{{Name: "blk.0.ffn_up.weight", Type: kind, Shape: []int{rows, cols}}})
	if err == nil {
		_, err = w.Write(blocks)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, rows*cols)
	quant.Dequantize(kind, want, blocks)
	return path, want
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// TestStoredFoldersAsSources: so do the matrices of quantised folders.
func TestStoredFoldersAsSources(t *testing.T) {
	for name, form := range hftest.Forms(t) {
		s := form.Write(t)
		dir := s.Folder(t, form.Config)
		tokens := map[string]int{}
		for i := range 40 {
			tokens[string(rune('A'+i))] = i
		}
		text, _ := json.Marshal(tokens)
		for file, content := range map[string][]byte{"vocab.json": text, "merges.txt": []byte("#version: 0.2\n")} {
			if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		src := open(t, dir)
		dst := filepath.Join(t.TempDir(), "out.gguf")
		if err := Quantize(t.Context(), src, dst, Options{Type: quant.F32}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := values(t, open(t, dst), "blk.0.ffn_down.weight")
		for i, v := range values(t, src, "blk.0.ffn_down.weight") {
			if got[i] != v {
				t.Fatalf("%s: value %d is %g, want %g", name, i, got[i], v)
			}
		}
	}
}
