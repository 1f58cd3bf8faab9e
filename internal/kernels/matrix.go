package kernels

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"terrace/internal/kernels/quant"
)

// Matrix is a weight matrix W [rows, cols] in a ggml block format. The bytes it was made from stay in use (Row and the
// Exact phase read them); the fast phases pack them on first use into the tile order of the kernels, see packed.go.
type Matrix struct {
	typ        quant.Type
	rows, cols int
	rowBytes   int
	data       []byte

	packing sync.Mutex
	packed  atomic.Pointer[byte] // tiles; nil until the first use on a SIMD path
	tile    int                  // bytes of a packed tile
	release func(part []byte)
	dropped func() // of a transient matrix
	load    func() ([]byte, error)
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
	return &Matrix{typ: t, rows: rows, cols: cols, rowBytes: rowBytes, data: data, tile: tileBytes(t, cols)}, nil
}

// Rows is the number of outputs of a product.
func (m *Matrix) Rows() int { return m.rows }

// Type is the block format of the weights.
func (m *Matrix) Type() quant.Type { return m.typ }

// Row writes the dequantised row i, as many values as the matrix has columns, to dst.
func (m *Matrix) Row(dst []float32, i int) {
	quant.Dequantize(m.typ, dst[:m.cols], m.data[i*m.rowBytes:(i+1)*m.rowBytes])
}

// OnPacked sets a function that is called, from the goroutine of MatMul, with each part of the weights' bytes as soon as
// it is packed: the owner of mapped bytes then tells the system that their pages may go (they are read again by Row or
// where a path without packing is selected), and packing never holds more than packChunkBytes twice.
func (m *Matrix) OnPacked(release func(part []byte)) { m.release = release }

// Transient says that the bytes were computed: they are let go as soon as they are packed, and dropped is called then. A path that
// does not pack gets them from load again. Row must not be called, since the bytes may go at any time.
func (m *Matrix) Transient(dropped func(), load func() ([]byte, error)) {
	m.dropped, m.load = dropped, load
}

// restore gets the bytes of a transient matrix again, for plain Go. The caller holds the pool.
func (m *Matrix) restore() {
	if m.load == nil {
		return
	}
	m.packing.Lock()
	defer m.packing.Unlock()
	if m.data != nil {
		return
	}
	data, err := m.load()
	if err == nil && len(data) != m.rows*m.rowBytes {
		err = fmt.Errorf("%d bytes, want %d: %w", len(data), m.rows*m.rowBytes, ErrShape)
	}
	if err != nil {
		panic(fmt.Errorf("kernels: the bytes of a matrix [%d, %d] of type %v again: %w", m.rows, m.cols, m.typ, err))
	}
	m.data = data
}

// tileAt is packed tile i.
func (m *Matrix) tileAt(i int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(m.packed.Load()), i*m.tile))
}

// inTile is a byte of packed tile i.
func (m *Matrix) inTile(i, at int) *byte { return (*byte)(unsafe.Add(unsafe.Pointer(m.tileAt(i)), at)) }

// ensurePacked packs the matrix with the pool's workers unless it is packed already. The caller holds p.mu.
func (p *Pool) ensurePacked(m *Matrix) {
	if m.packed.Load() != nil {
		return
	}
	m.packing.Lock()
	defer m.packing.Unlock()
	if m.packed.Load() != nil {
		return
	}
	if m.data == nil {
		panic(fmt.Sprintf("kernels: a product with a matrix [%d, %d] of type %v that is not in memory", m.rows, m.cols, m.typ))
	}
	tiles := tilesOf(m.rows)
	buf := packedMemory(m, tiles*m.tile+tilePad)
	chunk := max(p.threads, packChunkBytes/(tileRows*m.rowBytes))
	for first := 0; first < tiles; first += chunk {
		p.run(min(chunk, tiles-first), func(_, i int) {
			t := first + i
			m.packTile(buf[t*m.tile:(t+1)*m.tile], t*tileRows)
		})
		if m.release != nil {
			m.release(m.data[first*tileRows*m.rowBytes : min((first+chunk)*tileRows, m.rows)*m.rowBytes])
		}
	}
	m.packed.Store(&buf[0])
	if m.dropped != nil {
		m.data = nil
		m.dropped()
	}
}

// packChunkBytes of weights are packed before their pages are released.
const packChunkBytes = 4 << 20

// tilePad is room behind the last tile, so that a load of the last record's scales may be a whole vector.
const tilePad = 64

// packedBytes is the size of the packed form, which a product reads once for each group of rows.
func (m *Matrix) packedBytes() int { return tilesOf(m.rows) * m.tile }
