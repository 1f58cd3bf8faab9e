package gguf

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
)

// TestRow: a part of a row is that part of the tensor, between blocks and across them, and only its blocks are scanned.
func TestRow(t *testing.T) {
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
		quant.Dequantize(typ, values, data)
		x := NewTensor("table", typ, []int{rows, cols}, func() ([]byte, error) { return data, nil })
		for row := range rows {
			for _, c := range [][2]int{{0, cols}, {256, 256}, {32, 64}, {7, 5}, {250, 20}, {511, 1}, {0, 1}} {
				part := make([]float32, c[1])
				if err := x.Row(part, row, c[0]); err != nil || !slices.Equal(part, values[row*cols+c[0]:][:c[1]]) {
					t.Errorf("%v row %d: columns from %d on differ from the tensor's (%v)", typ, row, c[0], err)
				}
			}
		}
	}
	bad := make([]byte, 0, 32)
	for _, v := range []float32{1, 2, 3, float32(math.NaN())} {
		bad = append(bad, byte(math.Float32bits(v)), byte(math.Float32bits(v)>>8), byte(math.Float32bits(v)>>16), byte(math.Float32bits(v)>>24))
	}
	x := NewTensor("table", quant.F32, []int{2, 2}, func() ([]byte, error) { return bad, nil })
	part := make([]float32, 1)
	if err := x.Row(part, 1, 0); err != nil || part[0] != 3 {
		t.Errorf("beside a NaN: %v, %v", part, err)
	}
	if err := x.Row(part, 1, 1); !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), `"table": value row 1 column 1`) {
		t.Errorf("a NaN: %v", err)
	}
}
