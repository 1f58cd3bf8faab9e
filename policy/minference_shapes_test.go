package policy

import "testing"

// TestMInferenceShapes: A-shape and block-sparse heads see what a description of each says, and the search over all shapes holds no less
// of the last queries' weight than that over lines, at no more pairs than they cost; each shape is the best of some head.
func TestMInferenceShapes(t *testing.T) {
	const sizes, n, block = "minference:vertical=4k,slash=8k,first=4,newest=8,min_slash=8,pattern=", 400, 64
	v, d := 4096*n/32768, 8192*n/32768
	found := map[string]int{}
	for seed := range uint64(4) {
		s := randomScene(seed, n, 2, 2, 16)
		s.fill()
		if seed%2 == 1 { // neighbours ask for and hold the same: blocks tell them apart
			for i := range s.q {
				for x := range s.q[i] {
					s.q[i][x], s.k[i][x] = 4*s.q[i/block*block][x], s.k[i/block*block][x]
				}
			}
		}
		l := s.weighted(s.layer(0, AllRows), 64)
		mask := func(pattern string) *Mask {
			var m Mask
			mustSet(t, sizes+pattern, s).Masker.MaskPrompt(l, &m)
			checkPairs(t, &m)
			return &m
		}
		held := func(m *Mask, h int) (weight float64) {
			for q := n - 64; q < n; q++ {
				for k, w := range s.weights(h, q)[:q+1] {
					if m.Sees(h, q, k) {
						weight += w
					}
				}
			}
			return weight
		}
		a, b, lines, all := mask("a_shape"), mask("block_sparse"), mask("search"), mask("search,shapes=all")
		for h := range 2 {
			var best map[int]bool
			for q := range n {
				if q%block == 0 {
					best = bestBlockOf(s, h, q/block, block, (v+d)/block)
				}
				for k := range q + 1 {
					if got, want := a.Sees(h, q, k), k < v || q-k < d; got != want {
						t.Fatalf("seed %d: A-shape: query %d sees %d: %v", seed, q, k, got)
					}
					if got, want := b.Sees(h, q, k), best[k/block]; got != want {
						t.Fatalf("seed %d: blocks: query %d sees %d: %v, want %v", seed, q, k, got, best)
					}
				}
			}
			if got, want := held(all, h), held(lines, h); got < want-1e-4 {
				t.Errorf("seed %d: all shapes hold %g, lines %g", seed, got, want)
			}
			switch m := &all.Heads[h]; {
			case m.Block > 0:
				found["blocks"]++
			case len(m.Vertical) == (v+d)/5 && m.Vertical[len(m.Vertical)-1] == int32(len(m.Vertical)-1):
				found["A"]++
			default:
				found["lines"]++
			}
		}
	}
	if found["blocks"] == 0 || found["lines"] == 0 {
		t.Errorf("the search chose %v", found)
	}
}

// bestBlockOf has the key blocks that a query block sees: its own, and of those before it the n-1 with the largest product of means.
func bestBlockOf(s *scene, h, row, block, n int) map[int]bool {
	mean := func(rows [][]float32, at, b int) []float64 {
		out := make([]float64, s.dim)
		part := rows[b*block : min((b+1)*block, len(rows))]
		for _, r := range part {
			for d := range out {
				out[d] += float64(r[at*s.dim+d]) / float64(len(part))
			}
		}
		return out
	}
	q, products := mean(s.q, h, row), make([]float64, row)
	for b := range products {
		for d, x := range mean(s.k, h/(s.heads/s.kvHeads), b) {
			products[b] += q[d] * x
		}
	}
	seen := map[int]bool{row: true}
	for _, b := range topOf(products, min(n-1, row)) {
		seen[int(b)] = true
	}
	return seen
}
