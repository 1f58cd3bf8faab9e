package imatrix

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

var (
	// ErrFormat is returned for a file that is no importance matrix.
	ErrFormat = errors.New("not an importance matrix")
	// ErrShape is returned where a matrix and a tensor, or two inputs of one tensor, disagree in shape.
	ErrShape = errors.New("another shape")
)

// Matrix is an importance matrix.
type Matrix struct {
	Datasets    []string // files that it was computed on
	Chunks      int
	ChunkTokens int // 0 = the file does not say
	entries     map[string]*entry
}

// entry is what is known of one tensor.
type entry struct {
	cols    int
	squares []float32 // [experts, cols] sums of squares
	counts  []float32 // [experts] rows
}

// Names are the tensors that the matrix has weights for, sorted.
func (m *Matrix) Names() []string { return slices.Sorted(maps.Keys(m.entries)) }

// Weights returns the mean squares of a tensor's inputs [experts, cols], nil for a tensor without any. Errors wrap ErrShape.
func (m *Matrix) Weights(tensor string, experts, cols int) ([]float32, error) {
	e := m.entries[tensor]
	if e == nil {
		return nil, nil
	}
	if len(e.squares) != experts*cols || len(e.counts) != experts && len(e.counts) != 1 { // one count for all experts: older files
		return nil, fmt.Errorf("imatrix: tensor %q: weights for %d matrices of %d columns, the model has %d of %d: %w", tensor, len(e.counts), e.cols, experts, cols, ErrShape)
	}
	out := make([]float32, len(e.squares))
	for i, v := range e.squares {
		count := e.counts[0]
		if len(e.counts) > 1 {
			count = e.counts[i/cols]
		}
		if count > 0 {
			out[i] = v / count
		} else {
			out[i] = 1
		}
	}
	return out, nil
}

// validate checks invariant 1.
func (m *Matrix) validate() error {
	for _, name := range m.Names() {
		e := m.entries[name]
		if e.cols < 1 || len(e.counts) < 1 || len(e.squares) != e.cols*len(e.counts) {
			return fmt.Errorf("imatrix: tensor %q: %d sums for %d counts of %d columns: %w", name, len(e.squares), len(e.counts), e.cols, ErrFormat)
		}
		for _, list := range [][]float32{e.squares, e.counts} {
			for _, v := range list {
				if !(v >= 0 && v <= math.MaxFloat32) {
					return fmt.Errorf("imatrix: tensor %q: sum or count %g, want finite and not negative: %w", name, v, ErrFormat)
				}
			}
		}
	}
	return nil
}
