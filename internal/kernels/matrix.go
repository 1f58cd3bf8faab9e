package kernels

import (
	"fmt"
	"math"
	"sync"

	"terrace/internal/kernels/quant"
)

// Matrix is a weight matrix W [rows, cols] in a ggml block format. The bytes it was made from stay in use (Row and the
// Exact phase read them); the fast phases pack them on first use into the tile order of the kernels, see packed.go.
type Matrix struct {
	typ        quant.Type
	rows, cols int
	rowBytes   int
	data       []byte

	pack     sync.Once
	packed   []byte
	released func()
}

// NewMatrix wraps rows × cols weights of type t, row-major in data, which must stay valid and unchanged for the life of
// the matrix. Errors wrap ErrShape.
func NewMatrix(t quant.Type, rows, cols int, data []byte) (*Matrix, error) {
	if !t.Known() {
		return nil, fmt.Errorf("kernels: matrix [%d, %d]: type %v: want one of the known types: %w", rows, cols, t, ErrShape)
	}
	if rows <= 0 || cols <= 0 || cols%t.BlockLen() != 0 {
		return nil, fmt.Errorf("kernels: matrix of type %v: shape [%d, %d], want positive and cols a multiple of %d: %w",
			t, rows, cols, t.BlockLen(), ErrShape)
	}
	rowBytes := t.RowBytes(cols)
	if rows > math.MaxInt/rowBytes || len(data) != rows*rowBytes {
		return nil, fmt.Errorf("kernels: matrix [%d, %d] of type %v: got %d bytes, want %d rows of %d: %w",
			rows, cols, t, len(data), rows, rowBytes, ErrShape)
	}
	return &Matrix{typ: t, rows: rows, cols: cols, rowBytes: rowBytes, data: data}, nil
}

// Rows is the number of outputs of a product.
func (m *Matrix) Rows() int { return m.rows }

// Cols is the number of inputs of a product.
func (m *Matrix) Cols() int { return m.cols }

// Type is the block format of the weights.
func (m *Matrix) Type() quant.Type { return m.typ }

// Row writes the dequantised row i, Cols() values, to dst.
func (m *Matrix) Row(dst []float32, i int) {
	quant.Dequantize(m.typ, dst[:m.cols], m.data[i*m.rowBytes:(i+1)*m.rowBytes])
}

// OnPacked sets a function that is called once after the matrix was packed, from the goroutine of MatMul: the owner of
// mapped bytes then tells the system that it may drop their pages (they are read again when needed).
func (m *Matrix) OnPacked(f func()) { m.released = f }
