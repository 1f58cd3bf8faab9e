package engine

import (
	"fmt"
	"math"

	"terrace/model"
	"terrace/policy"
)

// rotate turns every head of x [rows, heads·dim] by the normalised Hadamard matrix, dim a power of two. Queries and keys are
// turned alike, so that their products stay what they were, while outliers of single channels are spread over all of them:
// low-bit keys lose less (QuaRot, arXiv 2404.00456). Cost: dim·log2(dim) additions a head.
func rotate(x []float32, dim int) {
	scale := float32(1 / math.Sqrt(float64(dim)))
	for ; len(x) >= dim; x = x[dim:] {
		head := x[:dim]
		for half := 1; half < dim; half *= 2 {
			for at := 0; at < dim; at += 2 * half {
				a, b := head[at:at+half], head[at+half:at+2*half]
				for i, u := range a {
					v := b[i]
					a[i], b[i] = u+v, u-v
				}
			}
		}
		for i := range head {
			head[i] *= scale
		}
	}
}

// checkKV refuses, before anything is read, what would fail or mislead in the middle.
func (o *Options) checkKV(m *model.Model, spec *policy.Spec) error {
	if o.Rotate && m.KeyDim&(m.KeyDim-1) != 0 {
		return fmt.Errorf("engine: heads of %d numbers cannot be rotated, the Hadamard matrix needs a power of two: %w", m.KeyDim, model.ErrUnsupported)
	}
	if o.Rotate && spec.Needs().QueryStats {
		return fmt.Errorf("engine: policy %s looks at queries before their position was added, which the rotation of keys hides: %w", spec, model.ErrUnsupported)
	}
	if (o.KType.Quantised() || o.VType.Quantised()) && spec.DropsEachStep() {
		return fmt.Errorf("engine: policy %s drops a token at each step, which would quantise the same %v keys and %v values again and again; use f16 KV, or decoding:, which cuts seldom: %w",
			spec, o.KType, o.VType, model.ErrUnsupported)
	}
	return o.checkFollow(spec)
}
