package engine

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"terrace/internal/kernels"
	"terrace/internal/nearest"
	"terrace/model"
)

// Rotation says which of queries with keys, and values, are turned by a Hadamard matrix before they are stored.
type Rotation uint8

// The rotations.
const (
	RotateAuto Rotation = iota // what keeps low-bit KV closest to f16: see Options.resolveRotation
	RotateNone
	RotateKeys
	RotateValues
	RotateBoth
)

var rotationNames = [...]string{"auto", "none", "k", "v", "kv"}

// String is the name that ParseRotation reads.
func (r Rotation) String() string { return rotationNames[r] }

// ParseRotation reads auto, none, k, v or kv; the error wraps ErrOption.
func ParseRotation(s string) (Rotation, error) {
	for r, name := range rotationNames {
		if s == name {
			return Rotation(r), nil
		}
	}
	return 0, fmt.Errorf("engine: rotation %q: want auto, none, k, v or kv%s: %w", s, nearest.Hint(s, rotationNames[:]), ErrOption)
}

// Keys reports whether queries and keys are turned, once auto is resolved.
func (r Rotation) Keys() bool { return r == RotateKeys || r == RotateBoth }

// Values reports whether values are turned, once auto is resolved.
func (r Rotation) Values() bool { return r == RotateValues || r == RotateBoth }

// turns reports whether anything is turned.
func (r Rotation) turns() bool { return r.Keys() || r.Values() }

// turnKeys turns a layer's rows of queries or keys, where the rotation is on; nil rows are none.
func (e *Engine) turnKeys(layer int, rows *tensor.Dense) {
	if rows != nil && e.o.Rotate.Keys() {
		kernels.Rotate(model.WritableFloat32s(rows), kernels.RotateBlock(e.m.Layer[layer].KeyDim))
	}
}

// turnValues turns a layer's rows of values before they are stored, or its attention's output back: the matrix is its own inverse.
// What lies between, such as a mean of values that a policy mixes in, is of turned values too.
func (e *Engine) turnValues(layer int, rows *tensor.Dense) {
	if rows != nil && e.o.Rotate.Values() && e.cache.Reads(layer) {
		kernels.Rotate(model.WritableFloat32s(rows), kernels.RotateBlock(e.m.Layer[layer].StoredValue()))
	}
}

// outputOfValues is Model.OutputOfValues of values as they are stored.
func (e *Engine) outputOfValues(layer int) ([]float32, error) {
	w, err := e.m.OutputOfValues(e.pool, layer)
	if err != nil || !e.o.Rotate.Values() {
		return w, err
	}
	w = slices.Clone(w)
	kernels.Rotate(w, kernels.RotateBlock(e.m.Layer[layer].StoredValue()))
	return w, nil
}

// resolveRotation decides what auto is: values of 4 bits and fewer are turned, with native, where their width has blocks of leastBlock. Keys are not:
// their scales are each channel's, so that outliers of single channels cost nothing, and spread ones would (docs/algorithms.md 0).
func (o *Options) resolveRotation(m *model.Model) error {
	switch {
	case o.Rotate > RotateBoth:
		return fmt.Errorf("engine: rotation %d, want %d to %d: %w", o.Rotate, RotateAuto, RotateBoth, ErrOption)
	case o.Rotate != RotateAuto:
		return nil
	}
	o.Rotate = RotateNone
	if o.Backend != "native" || o.VType.Bits() > 4 {
		return nil
	}
	for i := range m.Layer {
		if l := &m.Layer[i]; l.Heads > 0 && (l.Latent != nil || kernels.RotateBlock(l.StoredValue()) < leastBlock) {
			return nil
		}
	}
	o.Rotate = RotateValues
	return nil
}

// leastBlock is how many numbers must be turned together for auto to turn them: fewer spread an outlier over too few.
const leastBlock = 16
