package model

import (
	"math"

	"terrace/internal/kernels"
)

// arithmetic is what rows are computed in: those from decode on in the Decode phase, those before it in phase.
type arithmetic struct {
	phase  kernels.Phase
	decode int
}

// arithmetic is that of the pass's rows.
func (p *Pass) arithmetic() arithmetic {
	if p.Phase != kernels.Prefill || p.Steps == 0 {
		return arithmetic{p.Phase, math.MaxInt}
	}
	return arithmetic{p.Phase, len(p.Pos) - p.Steps}
}

// of is the arithmetic of some of the rows, given by their numbers in order.
func (a arithmetic) of(rows []int) arithmetic {
	n := 0
	for n < len(rows) && rows[n] < a.decode {
		n++
	}
	if n == len(rows) {
		n = math.MaxInt
	}
	return arithmetic{a.phase, n}
}

// parts reports whether n rows are of two arithmetics that differ for a matrix.
func (a arithmetic) parts(n int, w *Linear) bool {
	return a.decode < n && !kernels.PhasesAlike(w.Tensor.Type, w.Cols)
}

// first and last are the arithmetics of the rows before decode and of those from there on.
func (a arithmetic) first() arithmetic { return arithmetic{a.phase, math.MaxInt} }
func (a arithmetic) last() arithmetic  { return arithmetic{kernels.Decode, math.MaxInt} }

// from is the product's results of the rows from row on.
func (p product) from(row int) product {
	p.dst = p.dst[row*p.w.Rows:]
	return p
}

// MixesPhases implements Mixer: rows of steps are multiplied right after those of prompts, while the matrix is near.
func (b *native) MixesPhases() {}
