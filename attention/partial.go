package attention

import (
	"math"

	"terrace/internal/kernels"
)

// Norm is what the softmax of each row and head was divided by. With it, outputs over parts of a row's tokens that lie apart
// (on a drive and in host memory, say) merge to the output over all of them (Merge).
type Norm struct {
	Max    []float32 // [rows, Heads] largest score, scaled and capped; -Inf where the row sees no token
	LogSum []float32 // [rows, Heads] logarithm of the sum of the exponentials of all scores (log-sum-exp); -Inf likewise
}

// NewNorm has room for rows of heads.
func NewNorm(rows, heads int) *Norm {
	return &Norm{Max: make([]float32, rows*heads), LogSum: make([]float32, rows*heads)}
}

// set notes a head's largest score and the sum of the exponentials relative to it; nil notes nothing.
func (n *Norm) set(at int, top float32, sum float64) {
	if n == nil {
		return
	}
	if sum == 0 {
		top = float32(math.Inf(-1))
	}
	n.Max[at], n.LogSum[at] = top, float32(float64(top)+math.Log(sum))
}

// Partial is attention over a part of the tokens of one row: Out [Heads, ValueDim] is normalised by the part's own sum.
type Partial struct {
	Out []float32
	Norm
}

// Merge writes to dst the attention over the tokens of all parts together, and its norm: Σ exp(lse_i - lse)·out_i, in the order of the
// parts, in float32 with factors from float64. A single part comes out as it is, to the bit; heads that see no token in any part
// get zeros. Parts that hold a token in common, or each a sink, count it as often.
func Merge(dst *Partial, heads int, parts []Partial) {
	dim := len(dst.Out) / heads
	for h := range heads {
		top, biggest := math.Inf(-1), math.Inf(-1)
		for i := range parts {
			top = max(top, float64(parts[i].LogSum[h]))
			biggest = max(biggest, float64(parts[i].Max[h]))
		}
		out := dst.Out[h*dim : (h+1)*dim]
		clear(out)
		dst.Max[h], dst.LogSum[h] = float32(biggest), float32(top)
		if math.IsInf(top, -1) {
			continue
		}
		var total float64
		for i := range parts {
			total += math.Exp(float64(parts[i].LogSum[h]) - top)
		}
		for i := range parts {
			if f := math.Exp(float64(parts[i].LogSum[h])-top) / total; f > 0 {
				kernels.Axpy(out, float32(f), parts[i].Out[h*dim:(h+1)*dim])
			}
		}
		dst.LogSum[h] = float32(top + math.Log(total))
	}
}

// MixMean makes an output a·out + (1-a)·mean, the mean of n values whose sum is given: what stands for tokens that were not read
// (SparQ, arXiv 2312.04985; InstInfer's Algorithm 1, step 11). In float32.
func MixMean(out []float32, share float32, sum []float32, n int) {
	for d := range out {
		out[d] = share*out[d] + (1-share)*sum[d]/float32(n)
	}
}
