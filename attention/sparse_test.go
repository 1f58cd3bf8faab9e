package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// sees is the meaning of a mask, one pair at a time.
func (m *HeadMask) sees(row int, query, key int32) bool {
	switch {
	case m.Dense:
		return true
	case m.Rows != nil:
		return bit(m.Rows.Row(query), key)
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

// randomMask gives heads in turn: columns and diagonals, a block map, dense, diagonals alone, columns alone, nothing, rows of their own.
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
		switch (h + 3*(block/16-1)) % 7 {
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
		if (h+3*(block/16-1))%7 == 6 {
			m.Rows = randomRows(rnd, rows, keys)
		}
		s.Heads = append(s.Heads, m)
	}
	return s
}

// randomRows has the last rows of keys see a key in five, and themselves.
func randomRows(rnd *rand.Rand, rows, keys int) *RowMask {
	m := &RowMask{First: int32(keys - rows), Words: keys/64 + 2}
	m.Bits = make([]uint64, rows*m.Words)
	for r := range rows {
		row := m.Bits[r*m.Words : (r+1)*m.Words]
		for at := range keys {
			if rnd.IntN(5) == 0 || at == keys-rows+r {
				setBit(row, int32(at))
			}
		}
	}
	return m
}

// TestSparse compares masked prefill with the oracle, also over quantised keys, holes and windows.
func TestSparse(t *testing.T) {
	pool := kernels.NewPool(2)
	defer pool.Close()
	window := params(6, 3, 64)
	window.Window = 90
	for _, c := range []attendCase{
		{name: "f16", p: params(12, 3, 64), k: kvpage.F16, v: kvpage.F16, tokens: 260, page: 16},
		{name: "f32 holes", p: params(6, 1, 32), tokens: 200, page: 32, holes: true},
		{name: "int8", p: params(6, 2, 64), k: kvpage.I8, v: kvpage.I4, tokens: 144, page: 16},
		{name: "latent", p: params(7, 1, 36), k: kvpage.F16, v: kvpage.F16, tokens: 200, page: 16, latent: true},
		{name: "window", p: window, k: kvpage.F16, v: kvpage.F16, tokens: 200, page: 64},
	} {
		for _, ph := range []kernels.Phase{kernels.Exact, kernels.Prefill} {
			limit := map[kernels.Phase]float64{kernels.Exact: 4e-6, kernels.Prefill: 2e-2}[ph]
			for _, block := range []int{16, 48} {
				t.Run(fmt.Sprintf("%s/%d/%d", c.name, ph, block), func(t *testing.T) {
					const rows = 75
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
	b := []uint64{rnd.Uint64(), rnd.Uint64(), rnd.Uint64(), 0}
	for i := range int32(280) {
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

// TestSparseSavesWork counts the tiles that are computed: a mask that keeps an eighth of the pairs of a long context
// computes at most a quarter of them, and a pattern of blocks computes what it names.
func TestSparseSavesWork(t *testing.T) {
	p := params(2, 1, 64)
	s := Seq{Views: benchViews(p, kvpage.F16, 4096, 16)}
	const rows = 256
	for r := range rows {
		s.Pos = append(s.Pos, int32(4096-rows+r))
	}
	var lines HeadMask
	for i := range int32(256) {
		lines.Vertical, lines.Slash = append(lines.Vertical, i*8), append(lines.Slash, i)
	}
	blocks := HeadMask{Block: 128, Start: []int32{0, 2, 4}, Cols: []int32{0, 30, 0, 31}}
	s.Sparse = &Sparse{Heads: []HeadMask{lines, blocks}}
	w := &workspace{p: p, seqs: []Seq{s}}
	w.planSparse()
	computed := make([]int, p.Heads)
	for i := range w.sparseHeads {
		w.prepareSparse(0, i)
	}
	for _, task := range w.sparse {
		sh := &w.sparseHeads[task.seq]
		pos := s.Pos[task.from:task.to]
		tiles := len(sh.gathered.Pages) + len(s.Views[0].touched(nil, &s.Sparse.Heads[task.head], sh, pos, task.from, math.MinInt32))
		computed[task.head] += tiles * tileTokens * len(pos)
	}
	if dense := rows * 4096; computed[0] > dense/4 {
		t.Errorf("lines: %d of %d pairs computed, want at most a quarter", computed[0], dense)
	}
	// Two blocks a row, less the half of each diagonal block that lies after all rows of the first task in it.
	if want := rows*2*128 - 2*64*64; computed[1] != want {
		t.Errorf("blocks: %d pairs computed, want %d", computed[1], want)
	}
}
