package weights

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// scaledFile writes a GGUF file of one matrix and its scale.
func scaledFile(t *testing.T, kind quant.Type, shape, scaleShape []int, scales []float32) (string, []float32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	meta := &gguf.Meta{}
	meta.Set("general.architecture", "llama")
	infos := []gguf.Info{{Name: "blk.0.up.weight", Type: kind, Shape: shape}, {Name: "blk.0.up.scale", Type: quant.F32, Shape: scaleShape}}
	w, err := gguf.NewWriter(f, meta, infos)
	if err != nil {
		t.Fatal(err)
	}
	rng, blocks := rand.New(rand.NewPCG(1, 2)), make([]byte, infos[0].SizeBytes())
	for i := range blocks {
		blocks[i] = byte(rng.IntN(120))
	}
	var raw []byte
	for _, s := range scales {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(s))
	}
	for _, part := range [][]byte{blocks, raw} {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	values := make([]float32, len(blocks)/kind.BlockBytes()*kind.BlockLen())
	quant.Dequantize(kind, values, blocks)
	return path, values
}

// TestNVFP4Scales: a matrix is multiplied with the scale beside it, of the whole or of each expert.
func TestNVFP4Scales(t *testing.T) {
	for _, c := range []struct {
		shape, scaleShape []int
		scales            []float32
	}{{[]int{3, 128}, []int{1}, []float32{0.37}}, {[]int{2, 3, 64}, []int{2}, []float32{0.37, 5.1}}} {
		path, want := scaledFile(t, quant.NVFP4, c.shape, c.scaleShape, c.scales)
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		x, err := m.Tensor("blk.0.up.weight")
		if err != nil {
			t.Fatal(err)
		}
		b, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(want))
		quant.Dequantize(x.Type, got, b)
		for i, v := range want {
			v *= c.scales[i*len(c.scales)/len(want)]
			if d := math.Abs(float64(got[i] - v)); d > 1e-6*math.Abs(float64(v)) {
				t.Fatalf("%v: value %d is %g, want %g", c.shape, i, got[i], v)
			}
		}
	}
	path, _ := scaledFile(t, quant.NVFP4, []int{3, 64}, []int{2}, []float32{1, 1})
	if _, err := Open(path); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "up.scale") {
		t.Errorf("two scales of a matrix: %v", err)
	}
	path, _ = scaledFile(t, quant.Q8_0, []int{3, 64}, []int{1}, []float32{1})
	m, err := Open(path) // the architecture's own
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if x, err := m.Tensor("blk.0.up.weight"); err != nil || x.Type != quant.Q8_0 {
		t.Errorf("a scale beside Q8_0: %v, %v", x, err)
	}
}

// TestInternalTypes: a GGUF file cannot have the types that exist in memory only, and a file of a new type that is cut is refused.
func TestInternalTypes(t *testing.T) {
	for _, kind := range []quant.Type{quant.F8_E4M3, quant.NVFP4_F32} {
		path, _ := scaledFile(t, kind, []int{3, 64}, []int{1}, []float32{1})
		if _, err := Open(path); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "up.weight") {
			t.Errorf("%s: error %v, want ErrUnsupported", kind, err)
		}
	}
	path, _ := scaledFile(t, quant.NVFP4, []int{300, 64}, []int{1}, []float32{1})
	raw, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, raw[:len(raw)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrFormat) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a file cut short: %v", err)
	}
}

// TestNVFP4ScalesOfGemma4: the scales of Gemma 4's experts are left to the model, those beside its other matrices are not.
func TestNVFP4ScalesOfGemma4(t *testing.T) {
	write := func(name string) string {
		path := filepath.Join(t.TempDir(), "m.gguf")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		meta := &gguf.Meta{}
		meta.Set("general.architecture", "gemma4")
		w, err := gguf.NewWriter(f, meta, []gguf.Info{{Name: name + ".weight", Type: quant.NVFP4, Shape: []int{1, 64}}, {Name: name + ".scale", Type: quant.F32, Shape: []int{1}}})
		for _, part := range [][]byte{make([]byte, 36), {0, 0, 0, 0x40}} { // the scale is 2
			if err == nil {
				_, err = w.Write(part)
			}
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, folded := range map[string]bool{"blk.0.attn_q": true, "blk.0.ffn_down": true, "blk.0.ffn_down_exps": false, "blk.0.ffn_gate_inp": false} {
		m, err := Open(write(name))
		if err != nil {
			t.Fatal(err)
		}
		x, err := m.Tensor(name + ".weight")
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Type == quant.NVFP4_F32; got != folded || Folded(m, name+".scale") != folded || Folded(m, name+".weight") {
			t.Errorf("%s: multiplied with its scale: %v, want %v", name, got, folded)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
