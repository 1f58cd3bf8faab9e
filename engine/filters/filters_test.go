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

// TestWrittenCentersAreRead: means of what was added up, layers without any left out.
func TestWrittenCentersAreRead(t *testing.T) {
	c := policy.NewCenters(2, 3)
	c.Count = 4
	for i := range c.Real {
		c.Real[i], c.Imag[i], c.Length[i] = float64(i), float64(-2*i), float64(8*i)
	}
	path := filepath.Join(t.TempDir(), "c.safetensors")
	if err := WriteCenters(path, []*policy.Centers{nil, c, nil}); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil || len(got.Centers) != 2 || got.Centers[0] != nil || got.Centers[1].Count != 1 || got.Centers[1].Heads != 2 || got.Scores != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range c.Real {
		if x := got.Centers[1]; x.Real[i] != float64(i)/4 || x.Imag[i] != float64(-i)/2 || x.Length[i] != float64(2*i) {
			t.Errorf("%d: %g %g %g", i, x.Real[i], x.Imag[i], x.Length[i])
		}
	}
}

// head are the tensors of a head's centers.
func head(name string, planes ...int) (out []safetensors.Entry) {
	for i, part := range []string{"real", "imag"} {
		out = append(out, entry(name+".q_mean_"+part, planes[i]))
	}
	return append(out, entry(name+".q_abs_mean", planes[2]))
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
		{head("layer00_head00", 4, 4, 4)[:2], weights.ErrMissingTensor, "layer00_head00.q_abs_mean"},
		{head("layer03_head00", 4, 4, 3), weights.ErrFormat, "layer03_head00.q_abs_mean"},
		{append(head("layer00_head00", 4, 4, 4), head("layer00_head01", 3, 3, 3)...), weights.ErrFormat, "layer00_head01.q_mean_real"},
		{append(head("layer00_head00", 4, 4, 4), head("layer00_head02", 4, 4, 4)...), weights.ErrFormat, "belongs to no head"},
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
