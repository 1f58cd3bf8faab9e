package filters

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"terrace/policy"
	"terrace/weights"
	"terrace/weights/safetensors"
)

// written is a file of tensors whose numbers count up.
func written(t *testing.T, tensors ...safetensors.Entry) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.safetensors")
	w, err := safetensors.Create(path, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range tensors {
		n := 1
		for _, size := range e.Shape {
			n *= size
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i)
		}
		if err := w.WriteFloat32s(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func entry(name string, shape ...int) safetensors.Entry {
	return safetensors.Entry{Name: name, DType: "F32", Shape: shape}
}

// TestWrittenMapsAreRead: matrices and pairs of them come back as they were.
func TestWrittenMapsAreRead(t *testing.T) {
	m := &policy.ScoreMap{Layers: []policy.ScoreLayer{
		{In: 3, Heads: 2, Out: []float32{1, 2, 3, 4, 5, 6}, OutBias: []float32{7, 8}},
		{In: 3, Heads: 1, Hidden: []float32{1, 2, 3, 4, 5, 6}, HiddenBias: []float32{-1, 1}, Out: []float32{0.5, 0.25}, OutBias: []float32{9}},
	}}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := Write(path, m); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil || !reflect.DeepEqual(got.Scores, m) {
		t.Errorf("%+v, %v", got, err)
	}
	m.Layers[0].Gate = &policy.ScoreGate{}
	if err := Write(path, m); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a gate is written: %v", err)
	}
}

// TestReadRefuses: what is no file of filters or maps is said by the tensor that is wrong.
func TestReadRefuses(t *testing.T) {
	gate := []safetensors.Entry{entry("layers.0.q_norm.weight", 4), entry("layers.0.k_norm.weight", 4), entry("layers.0.b", 2, 1, 3), entry("layers.0.k_base", 2, 1, 5, 4),
		entry("layers.0.q_proj.weight", 24, 6), entry("layers.0.q_proj.bias", 24), entry("layers.0.k_proj.weight", 8, 6)}
	if f, err := Read(written(t, gate...)); err != nil || f.Scores.Layers[0].In != 6 || f.Scores.Layers[0].Heads != 2 || f.Scores.Layers[0].Gate.Group != 3 || f.Scores.Layers[0].Gate.Base != 5 {
		t.Errorf("gates: %v", err)
	}
	for _, c := range []struct {
		tensors []safetensors.Entry
		want    error
		says    string
	}{
		{[]safetensors.Entry{entry("embed", 2, 2)}, weights.ErrMissingTensor, "q_filters"},
		{[]safetensors.Entry{entry("q_filters", 2, 2)}, weights.ErrFormat, "q_filters has the shape [2 2], want [any any any]"},
		{[]safetensors.Entry{entry("layers.0.weight", 2, 3)}, weights.ErrMissingTensor, "layers.0.bias"},
		{[]safetensors.Entry{entry("layers.0.weight", 2, 3), entry("layers.0.bias", 3)}, weights.ErrFormat, "want [2]"},
		{[]safetensors.Entry{entry("layers.0.weight", 2, 3), entry("layers.0.bias", 2), entry("layers.2.bias", 2)}, weights.ErrFormat, "layers.2.bias belongs to no map"},
		{[]safetensors.Entry{entry("layers.0.0.weight", 5, 3), entry("layers.0.0.bias", 5), entry("layers.0.2.weight", 2, 4), entry("layers.0.2.bias", 2)}, weights.ErrFormat, "layers.0.2.weight"},
		{gate[:6], weights.ErrMissingTensor, "k_proj"},
	} {
		_, err := Read(written(t, c.tensors...))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %q", c.tensors[0].Name, err, c.says)
		}
	}
	path := written(t, entry("layers.0.weight", 1, 1), entry("layers.0.bias", 1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[len(b)-4:], []byte{0, 0, 0xc0, 0x7f}) // NaN
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, weights.ErrNotFinite) {
		t.Errorf("NaN: %v", err)
	}
}
