package keyindex

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestRounded: products are those with keys rounded to 16 steps between their own smallest and largest number.
func TestRounded(t *testing.T) {
	const n, dim, rows = 50, 17, 3
	rng := rand.New(rand.NewPCG(3, 4))
	keys, q := make([]float32, n*dim), make([]float32, rows*dim)
	for i := range keys {
		keys[i] = float32(rng.NormFloat64())
	}
	for i := range q {
		q[i] = float32(rng.NormFloat64())
	}
	clear(keys[4*dim : 5*dim]) // no two numbers differ
	r := &Rounded{dim: dim}
	r.Put(keys, 20)
	r.Put(keys[20*dim:], n-20)
	tokens := []int32{0, 4, 5, 19, 20, 49}
	dst := make([]float32, rows*len(tokens))
	r.Score(dst, tokens, q, rows)
	for i, token := range tokens {
		key := keys[int(token)*dim:][:dim]
		low, high := math.Inf(1), math.Inf(-1)
		for _, x := range key {
			low, high = min(low, float64(x)), max(high, float64(x))
		}
		step := max(high-low, 1e-9) / 15
		for h := range rows {
			var want float64
			for d, x := range key {
				want += float64(q[h*dim+d]) * (math.RoundToEven((float64(x)-low)/step)*step + low)
			}
			if e := math.Abs(want - float64(dst[h*len(tokens)+i])); e > 1e-5 {
				t.Errorf("token %d, query %d: off by %g", token, h, e)
			}
		}
	}
}
