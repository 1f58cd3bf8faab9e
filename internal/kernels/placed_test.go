package kernels

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"terrace/internal/kernels/quant"
)

// TestPlaced: rows that come in pieces, out of order, into memory that held something else, become what packing a whole matrix
// gives, byte for byte, for every type.
func TestPlaced(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for kind := quant.Type(0); kind < 64; kind++ {
		if !kind.Known() {
			continue
		}
		const rows, cols = 3*PlaceRows + 5, 512
		raw := make([]byte, rows*kind.RowBytes(cols))
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		whole, err := NewMatrix(kind, rows, cols, raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, byRow := range []bool{false, true} {
			m, err := NewVacant(kind, rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			if !m.Vacant() {
				t.Fatalf("%v: not vacant at first", kind)
			}
			memory := bytes.Repeat([]byte{0xA5}, m.PlacedBytes(byRow))
			row := kind.RowBytes(cols)
			for _, first := range []int{2 * PlaceRows, 0} {
				m.Place(memory, byRow, first, raw[first*row:min(first+2*PlaceRows, rows)*row])
			}
			m.Occupy(memory, byRow)
			if m.HasRows() != (byRow || simd == nil) {
				t.Errorf("%v: rows %v", kind, m.HasRows())
			}
			if m.HasRows() {
				if !bytes.Equal(m.data, raw) {
					t.Errorf("%v by row: bytes differ", kind)
				}
				continue
			}
			p.mu.Lock()
			p.ensurePacked(whole)
			p.mu.Unlock()
			n := whole.packedBytes()
			if !bytes.Equal(unsafe.Slice(m.packed.Load(), n), unsafe.Slice(whole.packed.Load(), n)) {
				t.Errorf("%v: packed bytes differ", kind)
			}
			m.Vacate()
			if !m.Vacant() {
				t.Errorf("%v: not vacant", kind)
			}
		}
	}
}
