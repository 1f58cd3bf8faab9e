package kernels

import (
	"fmt"

	"terrace/internal/kernels/quant"
)

// A placed matrix lies in memory that somebody else owns: its rows come in pieces, in any order, and are brought into the form
// that products read as they come, so that the file's form is never held whole. Between Vacate and Occupy it is vacant, and a
// product with it panics.

// NewVacant makes a matrix of type t [rows, cols] without memory. Errors wrap ErrShape.
func NewVacant(t quant.Type, rows, cols int) (*Matrix, error) {
	if !t.Known() || rows <= 0 || cols <= 0 || cols%t.BlockLen() != 0 {
		return nil, fmt.Errorf("kernels: matrix [%d, %d] of type %v: want a known type, positive sizes and cols a multiple of its blocks: %w", rows, cols, t, ErrShape)
	}
	return &Matrix{typ: t, rows: rows, cols: cols, rowBytes: t.RowBytes(cols), tile: tileBytes(t, cols)}, nil
}

// Cols is the number of inputs of a product.
func (m *Matrix) Cols() int { return m.cols }

// PlaceRows is what the first row of a piece must be a multiple of.
const PlaceRows = tileRows

// PlacedBytes is the memory that Occupy takes, in bytes: of the tiles on a SIMD path, of the rows as they are in plain Go and where
// rows are asked for one by one (Row).
func (m *Matrix) PlacedBytes(byRow bool) int {
	if simd == nil || byRow {
		return m.rows * m.rowBytes
	}
	return m.packedBytes() + tilePad
}

// Occupy gives a vacant matrix memory of PlacedBytes, whose content is what Place writes.
func (m *Matrix) Occupy(memory []byte, byRow bool) {
	want := m.PlacedBytes(byRow)
	if len(memory) < want {
		panic(fmt.Sprintf("kernels: matrix [%d, %d] of type %v placed in %d bytes, want %d", m.rows, m.cols, m.typ, len(memory), want))
	}
	if simd == nil || byRow {
		m.data = memory[:want:want]
		return
	}
	m.packed.Store(&memory[0])
}

// Place writes the rows from row0 on, as they are in a file, into memory that the matrix occupies or is about to. row0 is a
// multiple of PlaceRows, and so is the number of rows but for the last piece. Pieces may be placed at the same time.
func (m *Matrix) Place(memory []byte, byRow bool, row0 int, raw []byte) {
	rows := len(raw) / m.rowBytes
	if simd == nil || byRow {
		copy(memory[row0*m.rowBytes:(row0+rows)*m.rowBytes], raw)
		return
	}
	piece := &Matrix{typ: m.typ, rows: rows, cols: m.cols, rowBytes: m.rowBytes, data: raw, tile: m.tile}
	for at := 0; at < rows; at += tileRows {
		t := (row0 + at) / tileRows
		dst := memory[t*m.tile : (t+1)*m.tile]
		if at+tileRows > rows {
			clear(dst) // rows past the end are zero
		}
		piece.packTile(dst, at)
	}
}

// Vacate takes the memory away again; no product may be under way.
func (m *Matrix) Vacate() {
	m.packed.Store(nil)
	m.data = nil
}

// Vacant reports whether the matrix has no memory.
func (m *Matrix) Vacant() bool { return m.data == nil && m.packed.Load() == nil }

// HasRows reports whether Row may be called.
func (m *Matrix) HasRows() bool { return m.data != nil }
