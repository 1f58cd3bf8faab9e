package keyindex

import (
	"math"
	"math/rand/v2"
	"testing"
)

// plainCodes is k-means by its definition, in float64: squared distances of every pair, ties to the lower centroid.
func plainCodes(keys []float32, n, dim, parts, size, iters int) (codes []int, centroids [][]float64) {
	w := dim / parts
	codes = make([]int, n*parts)
	for m := range parts {
		c := make([][]float64, size)
		for j := range c {
			for _, x := range keys[(2*j+1)*n/(2*size)*dim+m*w:][:w] {
				c[j] = append(c[j], float64(x))
			}
		}
		assign := func() {
			for i := range n {
				best := math.Inf(1)
				for j := range c {
					var sum float64
					for d, x := range keys[i*dim+m*w:][:w] {
						sum += (float64(x) - c[j][d]) * (float64(x) - c[j][d])
					}
					if sum < best {
						best, codes[i*parts+m] = sum, j
					}
				}
			}
		}
		for range iters {
			assign()
			for j := range c {
				sum, count := make([]float64, w), 0.0
				for i := range n {
					if codes[i*parts+m] == j {
						count++
						for d, x := range keys[i*dim+m*w:][:w] {
							sum[d] += float64(x)
						}
					}
				}
				for d := range sum {
					if count > 0 {
						c[j][d] = sum[d] / count
					}
				}
			}
		}
		assign()
		centroids = append(centroids, c...)
	}
	return codes, centroids
}

// TestProductCodes: codes are those of k-means by its definition, scores are sums of products with centroids, and tokens with
// equal codes have equal scores, wherever they stand.
func TestProductCodes(t *testing.T) {
	for _, bits := range []int{3, 4, 5} { // of up to 4 bits two are in a byte
		for _, parts := range []int{1, 2, 4} {
			productCodes(t, parts, bits)
		}
	}
}

func productCodes(t *testing.T, parts, bits int) {
	t.Helper()
	const n, dim, iters, rows = 333, 32, 6, 5
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make([]float32, n*dim)
	for i := range keys {
		keys[i] = float32(rng.NormFloat64())
		if i >= 300*dim {
			keys[i] = keys[i-300*dim] // the same keys again
		}
	}
	p := NewProduct(dim, parts, bits, iters)
	p.Train(keys[:dim*(1<<bits)], 1<<bits)
	if p.Trained() {
		t.Error("no more keys than centroids, and there are centroids")
	}
	p.Train(keys, n)
	p.Put(keys, 100)
	p.Put(keys[100*dim:], n-100)
	want, centroids := plainCodes(keys, n, dim, parts, 1<<bits, iters)
	q := make([]float32, rows*dim)
	for i := range q {
		q[i] = float32(rng.NormFloat64())
	}
	scores, weights, sums := make([]float32, rows*n), make([]float32, rows*n), make([]float32, rows*dim)
	p.Score(scores, q, rows)
	for i := range weights {
		weights[i] = rng.Float32()
	}
	p.Sum(sums, weights, rows)
	for i := range sums {
		var sum float64
		for k := range n {
			m := i % dim / (dim / parts)
			sum += float64(weights[i/dim*n+k]) * centroids[m<<bits+want[k*parts+m]][i%dim%(dim/parts)]
		}
		if math.Abs(sum-float64(sums[i])) > 1e-3 {
			t.Fatalf("%d parts of %d bits: number %d of the weighted sum is %g, want %g", parts, bits, i, sums[i], sum)
		}
	}
	if got, want := p.scanBytes(), int64(n*codeBytes(parts, bits)+4*dim<<bits); got != want {
		t.Errorf("%d parts of %d bits: a scan reads %d bytes, want %d", parts, bits, got, want)
	}
	for i := range n {
		for m := range parts {
			if got := codeOf(p, i, m); got != want[i*parts+m] {
				t.Fatalf("token %d has code %d of part %d, want %d", i, got, m, want[i*parts+m])
			}
		}
		for r := range rows {
			var sum float64
			for d := range dim {
				m := d / (dim / parts)
				sum += float64(q[r*dim+d]) * centroids[m<<bits+want[i*parts+m]][d%(dim/parts)]
			}
			if e := math.Abs(sum - float64(scores[r*n+i])); e > 1e-5 {
				t.Fatalf("score of token %d is off by %g", i, e)
			}
			if i >= 300 && scores[r*n+i] != scores[r*n+i-300] {
				t.Fatalf("tokens %d and %d have equal keys and other scores", i, i-300)
			}
		}
	}
}

// codeOf is the code of one part of a token.
func codeOf(p *Product, i, m int) int {
	if !p.packed {
		return int(p.data[i/16][m*16+i%16])
	}
	return int(p.data[i/16][m/2*16+i%16]) >> (m % 2 * 4) & 15
}
