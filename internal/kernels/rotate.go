package kernels

import "math"

// RotateBlock is how many neighbouring numbers of a head of dim are turned together: the largest power of two that divides dim.
func RotateBlock(dim int) int { return dim & -dim }

// Rotate turns every head of x [rows, heads·dim] by the normalised Hadamard matrix, dim a power of two. Queries and keys are
// turned alike, so that their products stay what they were, while outliers of single channels are spread over all of them:
// low-bit keys lose less (QuaRot, arXiv 2404.00456). Cost: dim·log2(dim) additions a head.
func Rotate(x []float32, dim int) {
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
