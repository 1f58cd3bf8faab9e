package attention

import (
	"math"

	"terrace/internal/kernels"
)

// OutputNorms are ‖W·v‖ [to-from] of the values v of a range of a view's tokens. W [rows, ValueDim] is a head's part of the output
// projection: the first columns of w, whose rows are width apart (KVzip+, arXiv 2505.23416).
func OutputNorms(w []float32, width int, view *View, from, to int) []float32 {
	var reader Reader
	d := view.Layout.ValueDim
	gram := make([]float32, d*d) // Wᵀ·W
	for at := 0; at+d <= len(w); at += width {
		cols := w[at:][:d]
		for i, x := range cols {
			kernels.Axpy(gram[i*d:(i+1)*d], x, cols)
		}
	}
	out, v := make([]float32, to-from), make([]float32, d)
	for t := range out {
		reader.Values(view, from+t, from+t+1, v)
		var sum float64
		for i, x := range v {
			sum += float64(x) * float64(kernels.Dot(gram[i*d:(i+1)*d], v))
		}
		out[t] = float32(math.Sqrt(max(sum, 0)))
	}
	return out
}

// outputRows is how many values are projected at a time.
const outputRows = 64

// OutputSums fills dst [tokens of a view] with ‖W·v‖₁ of each token's value v, W as in OutputNorms (CriticalKV, arXiv 2502.03805).
func OutputSums(w []float32, width int, view *View, dst []float32) {
	var reader Reader
	var sums [outputRows]float64
	d := view.Layout.ValueDim
	v := make([]float32, outputRows*d)
	for from := 0; from < len(dst); from += outputRows {
		n := min(outputRows, len(dst)-from)
		reader.Values(view, from, from+n, v)
		clear(sums[:])
		for at := 0; at+d <= len(w); at += width {
			for t := range n {
				sums[t] += math.Abs(float64(kernels.Dot(w[at:at+d], v[t*d:(t+1)*d])))
			}
		}
		for t := range n {
			dst[from+t] = float32(sums[t])
		}
	}
}
