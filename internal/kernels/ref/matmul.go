package ref

import (
	"math"

	"terrace/internal/kernels/quant"
)

// blockLen is the number of activations that share a scale in the fast phases of a matrix product.
const blockLen = 32

// quantizeRow rounds a row of activations as the fast phases do: blocks of 32, scale max|x|/127 in float32, integers
// rounded to nearest even. It returns the integers and the scales.
func quantizeRow(x []float32) (q []int8, scales []float32) {
	q, scales = make([]int8, len(x)), make([]float32, len(x)/blockLen)
	for b := range scales {
		block := x[b*blockLen : (b+1)*blockLen]
		var most float32
		for _, v := range block {
			most = max(most, float32(math.Abs(float64(v)))) // a NaN makes the maximum NaN
		}
		scales[b] = most * float32(1.0/127)
		if most < 0x1p-101 {
			continue
		}
		inverse := 127 / most
		for i, v := range block {
			q[b*blockLen+i] = int8(math.RoundToEven(float64(v * inverse)))
		}
	}
	return q, scales
}

// Product is y[r][i] = sum over k of W[i][k]*x[r][k] in float64, and beside each sum the sum of the magnitudes, which
// error limits are relative to.
type Product struct{ Sum, Magnitude []float64 }

// MatMul multiplies n rows of x with the dequantised weights w [rows, cols] of type t.
func MatMul(t quant.Type, w []byte, rows, cols int, x []float32, n int) Product {
	return multiply(t, w, rows, cols, x, n, func(v float32) float32 { return v })
}

// MatMulBF16 is MatMul after both weights and activations were rounded to bf16, as the matrix unit takes them.
func MatMulBF16(t quant.Type, w []byte, rows, cols int, x []float32, n int) Product {
	short := make([]float32, n*cols)
	for i, v := range x[:n*cols] {
		short[i] = RoundBF16(v)
	}
	return multiply(t, w, rows, cols, short, n, RoundBF16)
}

// RoundBF16 is v to the nearest bf16, ties to even, denormals to zero, as VCVTNEPS2BF16 does it.
func RoundBF16(v float32) float32 {
	bits := math.Float32bits(v)
	switch {
	case v != v:
		return math.Float32frombits(bits | 1<<22)
	case bits<<1 < 1<<24:
		return math.Float32frombits(bits & (1 << 31))
	}
	bits += 0x7FFF + bits>>16&1
	return math.Float32frombits(bits &^ 0xFFFF)
}

func multiply(t quant.Type, w []byte, rows, cols int, x []float32, n int, round func(float32) float32) Product {
	p := Product{make([]float64, n*rows), make([]float64, n*rows)}
	rowBytes := t.RowBytes(cols)
	row := make([]float32, cols)
	for i := range rows {
		quant.Dequantize(t, row, w[i*rowBytes:(i+1)*rowBytes])
		for k, v := range row {
			row[k] = round(v)
		}
		for r := range n {
			var sum, magnitude float64
			for k, v := range x[r*cols : (r+1)*cols] {
				product := float64(row[k]) * float64(v)
				sum += product
				magnitude += math.Abs(product)
			}
			p.Sum[r*rows+i], p.Magnitude[r*rows+i] = sum, magnitude
		}
	}
	return p
}

// MatMulInt8 is MatMul after the activations were rounded with quantizeRow: what the integer kernels compute, but for
// the rounding of their float32 sums over blocks.
func MatMulInt8(t quant.Type, w []byte, rows, cols int, x []float32, n int) Product {
	rounded := make([]float32, n*cols)
	for r := range n {
		q, d := quantizeRow(x[r*cols : (r+1)*cols])
		for k, v := range q {
			rounded[r*cols+k] = float32(v) * d[k/blockLen]
		}
	}
	return MatMul(t, w, rows, cols, rounded, n)
}
