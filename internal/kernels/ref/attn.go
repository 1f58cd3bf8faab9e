package ref

import "math"

// Score writes q·k to s [heads][16·tiles]; q is [dim][heads]. Tokens whose mask bit is 0 score -Inf.
func Score(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int) {
	for t, mask := range masks {
		for h := range heads {
			out := s[(h*len(masks)+t)*tile:][:tile]
			clear(out)
			for d := range dim {
				for j := range out {
					out[j] += q[d*heads+h] * key(e, keys[t], d, j, dim)
				}
			}
			for j := range out {
				if mask>>j&1 == 0 {
					out[j] = float32(math.Inf(-1))
				}
			}
		}
	}
}

// Weigh adds p·v to out [heads][dim]; p is [heads][16·tiles]. Tokens whose mask bit is 0 are not read.
func Weigh(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int) {
	size := e.ValueRowBytes(dim)
	for t, mask := range masks {
		for j := range tile {
			if mask>>j&1 == 0 {
				continue
			}
			for h := range heads {
				w, o := p[(h*len(masks)+t)*tile+j], out[h*dim:(h+1)*dim]
				for d := range o {
					o[d] += w * value(e, values[t][j*size:], d, dim)
				}
			}
		}
	}
}

// ExpSum replaces x by e^(x-m) and returns the sum.
func ExpSum(x []float32, m float32) float32 {
	var sum float64
	for i, v := range x {
		e := math.Exp(float64(v) - float64(m))
		x[i] = float32(e)
		sum += e
	}
	return float32(sum)
}

// panelCols is the width of a panel and blockTokens that of a row of scores.
const (
	panelCols   = 64
	blockTokens = 128
)

// TurnKeys writes 16 rows of dim numbers of size bytes as a tile [dim][16].
func TurnKeys(size int, dst []byte, rows [][]byte, dim int) {
	for j, row := range rows[:tile] {
		for d := range dim {
			copy(dst[(d*tile+j)*size:][:size], row[d*size:])
		}
	}
}

// PackKeys copies a tile of keys to 16 columns of a panel [dim][64].
func PackKeys(e KVElem, dst []float32, keys []byte, dim int) {
	for i := range dim * tile {
		dst[i/tile*panelCols+i%tile] = key(e, keys, i/tile, i%tile, dim)
	}
}

// PackValues copies a tile of values to 16 rows of panels [tokens][64], panelLen numbers apart.
func PackValues(e KVElem, dst []float32, values []byte, dim, panelLen int) {
	size := e.ValueRowBytes(dim)
	for i := range dim * tile {
		j, d := i/dim, i%dim
		dst[d/panelCols*panelLen+j*panelCols+d%panelCols] = value(e, values[j*size:], d, dim)
	}
}

// Gemm computes c[r] = scale[r]·c[r] + a[r]·b for rows of 64 columns, b [k][64]; a nil scale is all zeros.
func Gemm(c []float32, cStride int, a []float32, aStride int, b []float32, k, rows int, scale []float32) {
	for r := range rows {
		row := c[r*cStride:][:panelCols]
		if scale == nil {
			clear(row)
		}
		for i := range row {
			if scale != nil {
				row[i] *= scale[r]
			}
		}
		for j, w := range a[r*aStride:][:k] {
			panel := b[j*panelCols:][:panelCols]
			for i := range row {
				row[i] += w * panel[i]
			}
		}
	}
}

func power(exact bool, x float64) float32 {
	if exact {
		return float32(math.Exp(x))
	}
	return float32(math.Exp2(x))
}

// SoftmaxBlock takes len(m) rows of 128 scores into their online softmax to base e (exact) or 2: m becomes the largest
// score so far, corr what earlier sums must be multiplied by, s the weights, whose sum joins l [rows][16] in lanes.
func SoftmaxBlock(exact bool, s, m, l, corr []float32) {
	for r := range m {
		row := s[r*blockTokens:][:blockTokens]
		top := max(m[r], Max(row))
		corr[r] = power(exact, float64(m[r]-top))
		m[r] = top
		sums := l[r*tile:][:tile]
		for i := range sums {
			sums[i] *= corr[r]
		}
		for i, x := range row {
			row[i] = power(exact, float64(x-top))
			sums[i%tile] += row[i]
		}
	}
}

// ColumnSums adds w[r]·p[r] for r = 0, stride, 2·stride … < len(w), p being rows of 128 numbers, to sums [128].
func ColumnSums(p, w []float32, stride int, sums []float32) {
	for r := 0; r < len(w); r += stride {
		for i, x := range p[r*blockTokens:][:blockTokens] {
			sums[i] += w[r] * x
		}
	}
}
