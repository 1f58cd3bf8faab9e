package model

import (
	"errors"
	"fmt"

	"terrace/weights"
)

// maxFaults bounds how many faults of one file are collected before reading stops making sense.
const maxFaults = 4

// reader gives an architecture's file typed access to metadata and tensors, and collects what is missing or wrong.
type reader struct {
	*faultList
	keyReader
	tensorReader
	ropeReader
}

// newReader reads a file of an architecture.
func newReader(file *weights.Model, arch string) *reader {
	faults := &faultList{}
	keys := keyReader{faultList: faults, meta: file.Meta(), arch: arch}
	r := &reader{faultList: faults, keyReader: keys, tensorReader: tensorReader{faultList: faults, file: file, read: map[string]bool{}}}
	r.ropeReader = ropeReader{faultList: faults, keyReader: &r.keyReader, tensorReader: &r.tensorReader}
	return r
}

// faultList is what is wrong with a file, up to maxFaults.
type faultList struct{ faults []error }

// keyReader reads metadata.
type keyReader struct {
	*faultList
	meta *weights.Meta
	arch string
	// unread is how many of the file's layers, its last, are no part of the decoder: they guess further tokens.
	unread int
}

// tensorReader reads tensors.
type tensorReader struct {
	*faultList
	file *weights.Model
	read map[string]bool // names of tensors that were asked for
}

// ropeReader reads rotary tables.
type ropeReader struct {
	*faultList
	*keyReader
	*tensorReader
	// exactRamp says that YaRN's ramp is not rounded to whole dimensions where the file does not say.
	exactRamp bool
}

func (f *faultList) fail(format string, args ...any) {
	if len(f.faults) < maxFaults {
		f.faults = append(f.faults, fmt.Errorf(format, args...))
	}
}

func (f *faultList) err() error { return errors.Join(f.faults...) }

// key is a metadata key of this architecture: "block_count" → "llama.block_count".
func (r *keyReader) key(name string) string { return r.arch + "." + name }

// int reads a required integer.
func (r *keyReader) int(name string) int {
	v, err := r.meta.Int(r.key(name))
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
		return 0
	}
	return v
}

// perLayer reads a required integer that GGUF also has as an array of one value a layer; here all layers must have the same.
func (r *keyReader) perLayer(name string, layers int) int {
	k := r.key(name)
	list, err := r.meta.Ints(k)
	if err != nil {
		return r.int(name) // it names the type that is there
	}
	if list = r.decoders(list, layers); len(list) == 0 || len(list) != layers {
		r.fail("metadata %q has %d values, want one integer or one for each of %d layers: %w", k, len(list), layers, ErrConfig)
		return 0
	}
	for i, x := range list {
		if x != list[0] {
			r.fail("metadata %q is %d in layer 0 and %d in layer %d, want the same in all layers: %w", k, list[0], x, i, ErrConfig)
			return 0
		}
	}
	return list[0]
}

// decoders is the part of a list by layer that is the decoder's, where it has the layers that guess further tokens too.
func (r *keyReader) decoders(list []int, layers int) []int {
	if len(list) == layers+r.unread {
		return list[:layers]
	}
	return list
}

// perLayerOr is perLayer for an optional integer.
func (r *keyReader) perLayerOr(name string, layers, def int) int {
	if !r.meta.Has(r.key(name)) {
		return def
	}
	return r.perLayer(name, layers)
}

// intOr reads an optional integer; one that is there with another type is a fault, never the default.
func (r *keyReader) intOr(name string, def int) int {
	if !r.meta.Has(r.key(name)) {
		return def
	}
	return r.int(name)
}

func (r *keyReader) float(name string) float32 {
	v, err := r.meta.Float(r.key(name))
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
	}
	return float32(v)
}

func (r *keyReader) floatOr(name string, def float32) float32 {
	if !r.meta.Has(r.key(name)) {
		return def
	}
	return r.float(name)
}

func (r *keyReader) boolOr(name string, def bool) bool {
	if !r.meta.Has(r.key(name)) {
		return def
	}
	v, err := r.meta.Bool(r.key(name))
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
	}
	return v
}

func (r *keyReader) stringOr(key, def string) string {
	if !r.meta.Has(key) {
		return def
	}
	v, err := r.meta.String(key)
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
	}
	return v
}

// tensor finds a tensor and checks its shape, outermost dimension first.
func (r *tensorReader) tensor(name string, shape ...int) *weights.Tensor {
	t := r.tensorNamed(name)
	if t == nil {
		return nil
	}
	if !sameShape(t.Shape, shape) {
		r.fail("tensor %q has shape %v, want %v: %w", name, t.Shape, shape, ErrConfig)
		return nil
	}
	return t
}

// tensorNamed finds a tensor of whatever shape.
func (r *tensorReader) tensorNamed(name string) *weights.Tensor {
	r.read[name] = true
	t, err := r.file.Tensor(name)
	if err != nil {
		r.fail("%w", err)
		return nil
	}
	return t
}

// sameShape compares shapes, leading ones aside (some writers keep them).
func sameShape(a, b []int) bool {
	for len(a) > len(b) && a[0] == 1 {
		a = a[1:]
	}
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// linear is the weight prefix.weight [rows, cols] with the bias prefix.bias where the file has one.
func (r *tensorReader) linear(prefix string, rows, cols int) *Linear {
	return r.part(prefix, rows, 0, rows, cols)
}

// part is rows [from, from+rows) of the fused weight prefix.weight [total, cols], with its part of the bias.
func (r *tensorReader) part(prefix string, total, from, rows, cols int) *Linear {
	t := r.tensor(prefix+".weight", total, cols)
	if t == nil {
		return nil
	}
	l := &Linear{Tensor: t, From: from, Rows: rows, Cols: cols}
	if r.file.Has(prefix + ".bias") {
		l.Bias, l.BFrom = r.vector(prefix+".bias", total), from
	}
	return l
}

// row is a weight of one row [cols], which files also have as [1, cols].
func (r *tensorReader) row(prefix string, cols int) *Linear {
	v := r.vector(prefix+".weight", cols)
	if v == nil {
		return nil
	}
	return &Linear{Tensor: v.Tensor, Rows: 1, Cols: cols}
}

// optionalLinear is linear for a weight that some models do not have.
func (r *tensorReader) optionalLinear(prefix string, rows, cols int) *Linear {
	if !r.file.Has(prefix + ".weight") {
		return nil
	}
	return r.linear(prefix, rows, cols)
}

// experts are the slices of a stacked weight [count, rows, cols], with the bias [count, rows] where the file has one.
func (r *tensorReader) experts(prefix string, count, rows, cols int) []*Linear {
	return r.expertParts(prefix, count, rows, 0, rows, cols)
}

// expertParts are rows [from, from+rows) of each slice of a stacked weight [count, total, cols].
func (r *tensorReader) expertParts(prefix string, count, total, from, rows, cols int) []*Linear {
	t := r.tensor(prefix+".weight", count, total, cols)
	if t == nil {
		return nil
	}
	out := make([]*Linear, count)
	for e := range out {
		out[e] = &Linear{Tensor: t, From: e*total + from, Rows: rows, Cols: cols}
	}
	if r.file.Has(prefix + ".bias") {
		if t := r.tensor(prefix+".bias", count, total); t != nil {
			bias := &Vector{Tensor: t}
			for e := range out {
				out[e].Bias, out[e].BFrom = bias, e*total+from
			}
		}
	}
	return out
}

// norm is the weight (and for LayerNorm the bias) of a normalisation over width elements.
func (r *tensorReader) norm(prefix string, width int) NormParams {
	p := NormParams{}
	if t := r.tensor(prefix+".weight", width); t != nil {
		p.W = &Vector{Tensor: t}
	}
	if r.file.Has(prefix + ".bias") {
		if t := r.tensor(prefix+".bias", width); t != nil {
			p.B = &Vector{Tensor: t}
		}
	}
	return p
}
