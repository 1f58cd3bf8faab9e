package kernels

import (
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels/quant"
)

// TestRowPart: a part of a row is that part of the whole row, between blocks and across them.
func TestRowPart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rows, cols = 3, 512
	for _, typ := range []quant.Type{quant.F32, quant.BF16, quant.Q8_0, quant.Q4_K} {
		values := make([]float32, rows*cols)
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		data := make([]byte, rows*typ.RowBytes(cols))
		if err := quant.Quantize(typ, data, values); err != nil {
			t.Fatal(err)
		}
		m, err := NewMatrix(typ, rows, cols, data)
		if err != nil {
			t.Fatal(err)
		}
		whole := make([]float32, cols)
		for row := range rows {
			m.Row(whole, row)
			for _, c := range [][2]int{{0, cols}, {256, 256}, {32, 64}, {7, 5}, {250, 20}, {511, 1}, {0, 1}} {
				part := make([]float32, c[1])
				m.RowPart(part, row, c[0])
				if !slices.Equal(part, whole[c[0]:c[0]+c[1]]) {
					t.Errorf("%v row %d: columns from %d on differ from the row's", typ, row, c[0])
				}
			}
		}
	}
}
