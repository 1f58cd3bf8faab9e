// Package filters reads and writes what policies have of a model from a file: the vectors that qfilter scores keys with (Q-Filters, arXiv
// 2503.02812), the maps that kvzap scores rows with (KVzap, arXiv 2601.07891; Fast KVzip, arXiv 2601.17668), and where triattention's queries
// stand (arXiv 2604.04921).
package filters

import (
	"errors"
	"fmt"
	"strings"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/policy"
	"terrace/weights"
	"terrace/weights/gguf"
	"terrace/weights/safetensors"
)

// Name is the tensor's, as kvpress's QFilters saves it.
const Name = "q_filters"

// Read reads a safetensors file of F32, F16 or BF16: a tensor q_filters [layers, KV heads, head width], or maps a layer, as kvpress's
// KVzapModel saves them (layers.N.weight [KV heads, hidden] and .bias of matrices, layers.N.0.… [width, hidden] and layers.N.2.… [KV heads,
// width] of two with GELU between them), or gates by the names of Fast KVzip's modules (layers.N.q_proj.weight, q_proj.bias, k_proj.weight,
// q_norm.weight, k_norm.weight, k_base, b), or centers of queries, layerNN_headNN.q_mean_real, .q_mean_imag and .q_abs_mean [planes], the
// names of TriAttention's .pt files joined. Errors name the file and wrap weights.ErrFormat, weights.ErrMissingTensor,
// weights.ErrNotFinite, those of package safetensors, or the system's.
func Read(path string) (*policy.Filters, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := reader{path: path, tensors: map[string]*gguf.Tensor{}}
	for _, t := range f.Tensors() {
		r.tensors[t.Name] = t
	}
	if r.has(Name) {
		values, shape := r.tensor(Name, -1, -1, -1)
		if r.err != nil {
			return nil, r.err
		}
		return &policy.Filters{Layers: shape[0], KVHeads: shape[1], KeyDim: shape[2], Values: values}, nil
	}
	if centers := r.centers(); centers != nil || r.err != nil {
		return &policy.Filters{Centers: centers}, r.err
	}
	out := &policy.ScoreMap{}
	for r.err == nil && r.any(fmt.Sprintf("layers.%d.", len(out.Layers))) {
		out.Layers = append(out.Layers, r.layer(fmt.Sprintf("layers.%d.", len(out.Layers))))
	}
	switch {
	case r.err != nil:
		return nil, r.err
	case len(out.Layers) == 0:
		return nil, fmt.Errorf("filters: %s: no tensor %s, and none of layers.0, of F32, F16 or BF16 there: is it a file of q-filters, of a score map, or of centers of queries?: %w", path, Name, weights.ErrMissingTensor)
	}
	for name := range r.tensors {
		return nil, fmt.Errorf("filters: %s: tensor %s belongs to no map of layers 0 to %d: %w", path, name, len(out.Layers)-1, weights.ErrFormat)
	}
	return &policy.Filters{Scores: out}, nil
}

// reader takes tensors of a file; the first error stays.
type reader struct {
	path    string
	tensors map[string]*gguf.Tensor // that were not taken yet
	err     error
}

func (r *reader) has(name string) bool { return r.tensors[name] != nil }

func (r *reader) any(prefix string) bool {
	for name := range r.tensors {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// tensor takes one of a shape, in which -1 is any size.
func (r *reader) tensor(name string, shape ...int) (values []float32, sizes []int) {
	sizes = make([]int, len(shape))
	t := r.tensors[name]
	if r.err == nil && t == nil {
		r.err = fmt.Errorf("filters: %s: no tensor %s of F32, F16 or BF16: %w", r.path, name, weights.ErrMissingTensor)
	}
	if r.err != nil {
		return nil, sizes
	}
	delete(r.tensors, name)
	fits, n := len(t.Shape) == len(shape), 1
	for i := range shape {
		if fits {
			fits, sizes[i], n = (shape[i] < 0 || shape[i] == t.Shape[i]) && t.Shape[i] > 0, t.Shape[i], n*t.Shape[i]
		}
	}
	if !fits {
		r.err = fmt.Errorf("filters: %s: %s has the shape %v, want %s: %w", r.path, name, t.Shape, strings.ReplaceAll(fmt.Sprint(shape), "-1", "any"), weights.ErrFormat)
		return nil, sizes
	}
	raw, err := t.Bytes()
	if err != nil {
		r.err = fmt.Errorf("filters: %s: %w", r.path, err)
		return nil, sizes
	}
	values = make([]float32, n)
	quant.Dequantize(t.Type, values, raw)
	if !kernels.Finite(values) {
		r.err = fmt.Errorf("filters: %s: %s holds numbers that are not finite: %w", r.path, name, weights.ErrNotFinite)
	}
	return values, sizes
}

// layer takes the map whose names begin so.
func (r *reader) layer(prefix string) (s policy.ScoreLayer) {
	switch {
	case r.has(prefix + "q_proj.weight"):
		return r.gate(prefix)
	case r.has(prefix + "0.weight"):
		var sizes []int
		s.Hidden, sizes = r.tensor(prefix+"0.weight", -1, -1)
		s.In = sizes[1]
		s.HiddenBias, _ = r.tensor(prefix+"0.bias", sizes[0])
		s.Out, sizes = r.tensor(prefix+"2.weight", -1, sizes[0])
		s.Heads = sizes[0]
		s.OutBias, _ = r.tensor(prefix+"2.bias", s.Heads)
		return s
	}
	var sizes []int
	s.Out, sizes = r.tensor(prefix+"weight", -1, -1)
	s.Heads, s.In = sizes[0], sizes[1]
	s.OutBias, _ = r.tensor(prefix+"bias", s.Heads)
	return s
}

func (r *reader) gate(prefix string) (s policy.ScoreLayer) {
	g := &policy.ScoreGate{}
	var sizes []int
	g.QueryNorm, sizes = r.tensor(prefix+"q_norm.weight", -1)
	g.Dim = sizes[0]
	g.KeyNorm, _ = r.tensor(prefix+"k_norm.weight", g.Dim)
	g.BiasOfGroups, sizes = r.tensor(prefix+"b", -1, 1, -1)
	s.Heads, g.Group = sizes[0], sizes[2]
	g.BaseKeys, sizes = r.tensor(prefix+"k_base", s.Heads, 1, -1, g.Dim)
	g.Base = sizes[2]
	g.Query, sizes = r.tensor(prefix+"q_proj.weight", s.Heads*g.Group*g.Dim, -1)
	s.In = sizes[1]
	g.QueryBias, _ = r.tensor(prefix+"q_proj.bias", s.Heads*g.Group*g.Dim)
	g.Key, _ = r.tensor(prefix+"k_proj.weight", s.Heads*g.Dim, s.In)
	s.Gate = g
	return s
}

// Write writes matrices, or pairs of them, as Read and kvpress's KVzapModel read them, in F32. The file appears whole, or not.
func Write(path string, m *policy.ScoreMap) error {
	var entries []safetensors.Entry
	var values [][]float32
	add := func(layer int, name string, x []float32, shape ...int) {
		entries = append(entries, safetensors.Entry{Name: fmt.Sprintf("layers.%d.%s", layer, name), DType: "F32", Shape: shape})
		values = append(values, x)
	}
	for i := range m.Layers {
		s := &m.Layers[i]
		if s.Gate != nil {
			return fmt.Errorf("filters: %s: layer %d is a gate, which is read and not written: %w", path, i, errors.ErrUnsupported)
		}
		if s.Hidden == nil {
			add(i, "weight", s.Out, s.Heads, s.In)
			add(i, "bias", s.OutBias, s.Heads)
			continue
		}
		width := len(s.HiddenBias)
		add(i, "0.weight", s.Hidden, width, s.In)
		add(i, "0.bias", s.HiddenBias, width)
		add(i, "2.weight", s.Out, s.Heads, width)
		add(i, "2.bias", s.OutBias, s.Heads)
	}
	return write(path, entries, values)
}

// centersOf are the names of a head's tensors.
const centersOf = "layer%02d_head%02d."

var centerNames = [...]string{"q_mean_real", "q_mean_imag", "q_abs_mean"}

// centers takes those of all layers that the file has; nil where it has none.
func (r *reader) centers() []*policy.Centers {
	var out []*policy.Centers
	for layer := 0; layer < maxLayers && r.err == nil; layer++ {
		heads := 0
		for r.any(fmt.Sprintf(centersOf, layer, heads)) {
			heads++
		}
		if heads == 0 {
			continue
		}
		var c *policy.Centers
		for h := range heads {
			prefix := fmt.Sprintf(centersOf, layer, h)
			planes := -1
			if c != nil {
				planes = c.Planes
			}
			re, sizes := r.tensor(prefix+centerNames[0], planes)
			im, _ := r.tensor(prefix+centerNames[1], sizes[0])
			length, _ := r.tensor(prefix+centerNames[2], sizes[0])
			if r.err != nil {
				return nil
			}
			if c == nil {
				c = policy.NewCenters(heads, sizes[0])
				c.Count = 1
			}
			for i := range re {
				at := h*c.Planes + i
				c.Real[at], c.Imag[at], c.Length[at] = float64(re[i]), float64(im[i]), float64(length[i])
			}
		}
		out = append(out, make([]*policy.Centers, layer+1-len(out))...)
		out[layer] = c
	}
	for name := range r.tensors {
		if out != nil && r.err == nil {
			r.err = fmt.Errorf("filters: %s: tensor %s belongs to no head of a layer: %w", r.path, name, weights.ErrFormat)
		}
	}
	return out
}

// maxLayers bounds the numbers of layers in names.
const maxLayers = 1024

// WriteCenters writes where queries stand, by layer, nil where there is none, as Read reads it, in F32. The file appears whole, or not.
func WriteCenters(path string, layers []*policy.Centers) error {
	var entries []safetensors.Entry
	var values [][]float32
	for i, c := range layers {
		if c == nil {
			continue
		}
		for h := range c.Heads {
			for k, sums := range [][]float64{c.Real, c.Imag, c.Length} {
				x := make([]float32, c.Planes)
				for f := range x {
					x[f] = float32(sums[h*c.Planes+f] / float64(max(c.Count, 1)))
				}
				entries = append(entries, safetensors.Entry{Name: fmt.Sprintf(centersOf, i, h) + centerNames[k], DType: "F32", Shape: []int{c.Planes}})
				values = append(values, x)
			}
		}
	}
	return write(path, entries, values)
}

func write(path string, entries []safetensors.Entry, values [][]float32) error {
	w, err := safetensors.Create(path, entries)
	if err != nil {
		return err
	}
	for _, x := range values {
		if err := w.WriteFloat32s(x); err != nil {
			w.Abort()
			return err
		}
	}
	return w.Close()
}
