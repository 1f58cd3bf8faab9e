package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// sees is the meaning of a mask, one pair at a time.
func (m *HeadMask) sees(row int, query, key int32) bool {
	switch {
	case m.Dense:
		return true
	case m.Block > 0:
		b := row / m.Block
		return slices.Contains(m.Cols[m.Start[b]:m.Start[b+1]], key/int32(m.Block))
	}
	return slices.Contains(m.Vertical, key) || slices.Contains(m.Slash, query-key)
}

// sparseOracle computes Out with plain float64 loops.
func sparseOracle(p Params, s *Seq) []float64 {
	out := make([]float64, len(s.Pos)*p.Heads*p.ValueDim)
	for h := range p.Heads {
		tokens := oracleTokens(&s.Views[h*p.KVHeads/p.Heads])
		for r, at := range s.Pos {
			w := oracleWeights(&p, s.Q[(r*p.Heads+h)*p.KeyDim:][:p.KeyDim], at, h, tokens, func(i int) bool {
				return s.Sparse.Heads[h].sees(r, at, tokens[i].pos)
			})
			for i, t := range tokens {
				for d := range p.ValueDim {
					out[(r*p.Heads+h)*p.ValueDim+d] += w[i] * t.v[d]
				}
			}
		}
	}
	return out
}

// randomMask gives heads in turn: columns and diagonals, a block map, dense, diagonals alone, columns alone, nothing.
func randomMask(rnd *rand.Rand, heads, rows, keys, block int) *Sparse {
	some := func(n, one int) []int32 {
		var out []int32
		for i := range n {
			if rnd.IntN(one) == 0 {
				out = append(out, int32(i))
			}
		}
		return out
	}
	s := &Sparse{}
	for h := range heads {
		var m HeadMask
		switch h % 6 {
		case 0:
			m.Vertical, m.Slash = some(keys, 9), append([]int32{0, 1, 2}, some(keys, 40)[1:]...)
			slices.Sort(m.Slash)
			m.Slash = slices.Compact(m.Slash)
		case 1:
			m.Block = block
			m.Start = []int32{0}
			for range (rows + block - 1) / block {
				m.Cols = append(m.Cols, some((keys+block-1)/block, 2)...)
				m.Start = append(m.Start, int32(len(m.Cols)))
			}
		case 2:
			m.Dense = true
		case 3:
			m.Slash = some(keys, 60)
		case 4:
			m.Vertical = some(keys, 20)
		}
		s.Heads = append(s.Heads, m)
	}
	return s
}

// TestSparse compares masked prefill with the oracle, also over quantised keys, holes and windows.
func TestSparse(t *testing.T) {
	pool := kernels.NewPool(2)
	defer pool.Close()
	window := params(6, 3, 64)
	window.Window = 90
	for _, c := range []attendCase{
		{name: "f16", p: params(12, 3, 64), k: kvpage.F16, v: kvpage.F16, tokens: 400, page: 16},
		{name: "f32 holes", p: params(6, 1, 32), tokens: 300, page: 32, holes: true},
		{name: "int8", p: params(6, 2, 64), k: kvpage.I8, v: kvpage.I4, tokens: 256, page: 16},
		{name: "window", p: window, k: kvpage.F16, v: kvpage.F16, tokens: 300, page: 64},
	} {
		for _, ph := range []kernels.Phase{kernels.Exact, kernels.Prefill} {
			limit := map[kernels.Phase]float64{kernels.Exact: 4e-6, kernels.Prefill: 2e-2}[ph]
			for _, block := range []int{16, 48, 128} {
				t.Run(fmt.Sprintf("%s/%d/%d", c.name, ph, block), func(t *testing.T) {
					const rows = 150
					s := c.make(5, rows)
					keys := int(s.Pos[rows-1]) + 1
					s.Sparse = randomMask(rand.New(rand.NewPCG(6, uint64(block))), c.p.Heads, rows, keys, block)
					Attend(pool, ph, c.p, []Seq{s})
					if e := largestError(s.Out, sparseOracle(c.p, &s)); e > limit {
						t.Errorf("error %.2g of the largest output, want at most %.2g", e, limit)
					}
				})
			}
		}
	}
}

func TestBits16(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	b := []uint64{rnd.Uint64(), rnd.Uint64(), rnd.Uint64()}
	for i := int32(-20); i < 210; i++ {
		var want uint16
		for j := range int32(16) {
			if bit(b, i+j) {
				want |= 1 << j
			}
		}
		if got := bits16(b, i); got != want {
			t.Fatalf("bits16(%d) = %016b, want %016b", i, got, want)
		}
		for n := int32(0); n < 70; n++ {
			any := false
			for j := range n + 1 {
				any = any || bit(b, i+j)
			}
			if anyBit(b, i, i+n) != any {
				t.Fatalf("anyBit(%d, %d) = %v", i, i+n, !any)
			}
		}
	}
}

// TestSparseSavesWork: a mask that keeps an eighth of a long context takes well under half of the dense time.
func TestSparseSavesWork(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	pool := kernels.NewPool(1)
	defer pool.Close()
	p := params(4, 1, 64)
	s := Seq{Views: benchViews(p, kvpage.F16, 4096, 16)}
	for r := range 256 {
		s.Pos = append(s.Pos, int32(4096-256+r))
	}
	s.Q, s.Out = make([]float32, 256*4*64), make([]float32, 256*4*64)
	took := func() time.Duration {
		best := time.Duration(math.MaxInt64)
		for range 5 {
			start := time.Now()
			Attend(pool, kernels.Prefill, p, []Seq{s})
			best = min(best, time.Since(start))
		}
		return best
	}
	dense := took()
	s.Sparse = &Sparse{}
	for range p.Heads {
		var m HeadMask
		for i := range int32(256) {
			m.Vertical, m.Slash = append(m.Vertical, i*8), append(m.Slash, i)
		}
		s.Sparse.Heads = append(s.Sparse.Heads, m)
	}
	if sparse := took(); sparse > dense/2 {
		t.Errorf("an eighth of the pairs takes %v, all %v; want less than half", sparse, dense)
	} else {
		t.Logf("an eighth of the pairs takes %v, all %v: %.0f %%", sparse, dense, 100*float64(sparse)/float64(dense))
	}
}
