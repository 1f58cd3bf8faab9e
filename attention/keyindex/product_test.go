package keyindex

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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
	for _, bits := range []int{3, 4, 5, 7} { // of up to 4 bits two are in a byte
		for _, parts := range []int{1, 2, 4} {
			productCodes(t, parts, bits, false)
			productCodes(t, parts, bits, true)
		}
	}
}

// turned is x [n, dim] with its numbers in an order.
func turned(x []float32, n int, order []int32) []float32 {
	out := make([]float32, 0, len(x))
	for i := range n {
		for _, d := range order {
			out = append(out, x[i*len(order)+int(d)])
		}
	}
	return out
}

func productCodes(t *testing.T, parts, bits int, arrange bool) {
	t.Helper()
	const n, dim, iters, rows = 333, 32, 6, 5
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make([]float32, n*dim)
	for i := range keys {
		keys[i] = float32(rng.NormFloat64())
		if i%dim < 5 {
			keys[i] *= 6
		}
		if i >= 300*dim {
			keys[i] = keys[i-300*dim] // the same keys again
		}
	}
	p := NewProduct(dim, parts, bits, iters)
	p.arrange = arrange
	p.Train(keys[:dim*(1<<bits)], 1<<bits)
	if p.Trained() {
		t.Error("no more keys than centroids, and there are centroids")
	}
	p.Train(keys, n)
	p.Put(keys, 100)
	p.Put(keys[100*dim:], 1)
	p.Put(keys[101*dim:], n-101)
	if arrange {
		if p.order == nil {
			t.Fatal("no order")
		}
		keys = turned(keys, n, p.order)
	}
	want, centroids := plainCodes(keys, n, dim, parts, 1<<bits, iters)
	q := make([]float32, rows*dim)
	for i := range q {
		q[i] = float32(rng.NormFloat64())
	}
	scores, weights, sums := make([]float32, rows*n), make([]float32, rows*n), make([]float32, rows*dim)
	p.Score(scores, q, rows)
	if arrange {
		q = turned(q, rows, p.order)
	}
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

// TestBalanced: each number stands once, parts get about the same product of variances, and scores of keys whose neighbours vary
// alike are nearer to the products than without.
func TestBalanced(t *testing.T) {
	const n, dim, parts = 600, 16, 4
	rng := rand.New(rand.NewPCG(3, 4))
	keys, q := make([]float32, n*dim), make([]float32, dim)
	for i := range keys {
		keys[i] = float32(rng.NormFloat64())
		if d := i % dim; d < 4 {
			keys[i] *= 8 // all of the first part
		}
	}
	for d := range q {
		q[d] = float32(rng.NormFloat64())
	}
	order := balanced(keys, n, dim, parts)
	if sorted := slices.Sorted(slices.Values(order)); len(sorted) != dim || sorted[0] != 0 || sorted[dim-1] != dim-1 || len(slices.Compact(sorted)) != dim {
		t.Fatalf("order %v", order)
	}
	for m := range parts {
		if big := slices.IndexFunc(order[m*4:m*4+4], func(d int32) bool { return d < 4 }); big < 0 {
			t.Errorf("part %d of %v has none of the numbers that vary", m, order)
		}
	}
	off := func(arrange bool) (sum float64) {
		p := NewProduct(dim, parts, 4, 10)
		p.arrange = arrange
		p.Train(keys, n)
		p.Put(keys, n)
		scores := make([]float32, n)
		p.Score(scores, q, 1)
		for i, z := range scores {
			e := float64(z)
			for d, x := range q {
				e -= float64(x) * float64(keys[i*dim+d])
			}
			sum += e * e / n
		}
		return sum
	}
	if plain, better := off(false), off(true); better > plain/3 {
		t.Errorf("mean square of what scores are off by: %g, %g without an order", better, plain)
	}
}

// TestThin: rows evenly spread, the same as in the middles of equal stretches.
func TestThin(t *testing.T) {
	x := make([]float32, 20)
	for i := range x {
		x[i] = float32(i / 2)
	}
	if n := thin(slices.Clone(x), 10, 2, 0); n != 10 {
		t.Errorf("0 keeps %d of 10", n)
	}
	if n := thin(slices.Clone(x), 10, 2, 10); n != 10 {
		t.Errorf("10 keeps %d of 10", n)
	}
	if n := thin(x, 10, 2, 3); n != 3 || !slices.Equal(x[:6], []float32{1, 1, 5, 5, 8, 8}) {
		t.Errorf("3 of 10: %d, %v", n, x[:6])
	}
}

// codeOf is the code of one part of a token.
func codeOf(p *Product, i, m int) int {
	if !p.packed {
		return int(p.data[i/16][m*16+i%16])
	}
	return int(p.data[i/16][m/2*16+i%16]) >> (m % 2 * 4) & 15
}

// BenchmarkTrain is what one KV head of a prompt of 3,500 tokens takes.
func BenchmarkTrain(b *testing.B) {
	const n, dim = 3500, 64
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make([]float32, n*dim)
	for i := range keys {
		keys[i] = float32(rng.NormFloat64())
	}
	for _, c := range []struct{ parts, bits int }{{32, 4}, {2, 6}} {
		b.Run(fmt.Sprintf("parts=%d,bits=%d", c.parts, c.bits), func(b *testing.B) {
			for b.Loop() {
				p := NewProduct(dim, c.parts, c.bits, 10)
				p.Train(keys, n)
				p.Put(keys, n)
			}
		})
	}
}

// TestPutAt: codes of tokens that came to places in any order, some twice, are those of keys put one after another.
func TestPutAt(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	const dim, n = 8, 40
	keys := make([]float32, n*dim)
	for i := range keys {
		keys[i] = float32(rng.NormFloat64())
	}
	want, got := NewProduct(dim, dim/2, 4, 3), NewProduct(dim, dim/2, 4, 3)
	want.Train(keys, n)
	got.Train(keys, n)
	want.Put(keys, n)
	order := rng.Perm(n)
	for _, i := range append([]int{n - 1, 5}, order...) { // 5 has another's key at first
		from := i
		if i == 5 && got.Tokens() == n {
			from = 6
		}
		got.PutAt([]int32{int32(i)}, keys[from*dim:(from+1)*dim])
	}
	got.PutAt([]int32{3, 5}, append(append([]float32(nil), keys[3*dim:4*dim]...), keys[5*dim:6*dim]...))
	if got.Tokens() != n {
		t.Fatalf("%d tokens, want %d", got.Tokens(), n)
	}
	a, b := make([]float32, n), make([]float32, n)
	want.Score(a, keys[:dim], 1)
	got.Score(b, keys[:dim], 1)
	if !slices.Equal(a, b) {
		t.Errorf("scores %v, want %v", b, a)
	}
}

// TestFewKeys: a prompt with fewer keys than centroids has codes where they are wanted always, and they render its keys exactly.
func TestFewKeys(t *testing.T) {
	keys := []float32{1, 2, 3, 4, -1, 0.5, 2, 8}
	p := NewProduct(4, 2, 4, 2)
	if p.Train(keys, 2); p.Trained() {
		t.Error("two keys gave 16 centroids")
	}
	p.always = true
	p.Train(keys, 2)
	p.Put(keys, 2)
	got := make([]float32, 2)
	p.Score(got, []float32{1, 10, 100, 1000}, 1)
	if want := []float32{4321, 8204}; !slices.Equal(got, want) {
		t.Errorf("scores %v, want %v", got, want)
	}
}
