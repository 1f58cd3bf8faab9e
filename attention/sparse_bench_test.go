package attention

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// BenchmarkSparse is 2048 rows at the end of 8192 tokens under masks of falling density: dense attention, block maps of 128,
// and columns with diagonals. pairs% is the share of the pairs that the mask leaves, time% that of the dense time.
func BenchmarkSparse(b *testing.B) {
	const depth, rows, block = 8192, 2048, 128
	for _, m := range benchModels {
		views := benchViews(m.p, kvpage.F16, depth, 16)
		s := Seq{Q: make([]float32, rows*m.p.Heads*m.p.KeyDim), Views: views, Out: make([]float32, rows*m.p.Heads*m.p.ValueDim)}
		for i := range s.Q {
			s.Q[i] = float32(i%7)/7 - 0.5
		}
		for r := range rows {
			s.Pos = append(s.Pos, int32(depth-rows+r))
		}
		pool := kernels.NewPool(2)
		defer pool.Close()
		var dense float64
		run := func(name string, mask *Sparse) {
			b.Run(m.name+"/"+name, func(b *testing.B) {
				s := s
				s.Sparse = mask
				seqs := []Seq{s}
				best := fastest(b, func() { Attend(pool, kernels.Prefill, m.p, seqs) }).Seconds()
				if mask == nil {
					dense = best
				} else {
					b.ReportMetric(100*float64(visible(mask, s.Pos))/float64(visible(&Sparse{Heads: []HeadMask{{Dense: true}}}, s.Pos)), "pairs%")
				}
				b.ReportMetric(100*best/dense, "time%")
			})
		}
		run("dense", nil)
		for _, share := range []float64{1, 0.5, 0.25, 0.1, 0.05} {
			run(fmt.Sprintf("blocks/%g", share), repeated(m.p.Heads, blockMap(depth, rows, block, share)))
		}
		for _, n := range [][2]int{{1000, 1524}, {250, 1524}, {250, 400}, {30, 100}} {
			run(fmt.Sprintf("columns=%d,diagonals=%d", n[0], n[1]), repeated(m.p.Heads, lineMask(depth, n[0], n[1])))
		}
	}
}

func repeated(heads int, m HeadMask) *Sparse {
	return &Sparse{Heads: slices.Repeat([]HeadMask{m}, heads)}
}

// blockMap sees a share of the blocks of each row of blocks, the first and the diagonal among them.
func blockMap(depth, rows, block int, share float64) HeadMask {
	rng := rand.New(rand.NewPCG(7, 7))
	m := HeadMask{Block: block, Start: []int32{0}}
	for r := range rows / block {
		last := (depth-rows)/block + r
		for c := range last + 1 {
			if c == 0 || c == last || rng.Float64() < share {
				m.Cols = append(m.Cols, int32(c))
			}
		}
		m.Start = append(m.Start, int32(len(m.Cols)))
	}
	return m
}

// lineMask sees scattered columns, the newest diagonals, and others in runs of 8 as a prompt's are.
func lineMask(depth, columns, diagonals int) HeadMask {
	rng := rand.New(rand.NewPCG(8, 8))
	m := HeadMask{}
	for range columns {
		m.Vertical = append(m.Vertical, int32(rng.IntN(depth)))
	}
	for d := range diagonals / 4 {
		m.Slash = append(m.Slash, int32(d))
	}
	for range diagonals * 3 / 4 / 8 {
		at := rng.IntN(depth - 8)
		for d := range 8 {
			m.Slash = append(m.Slash, int32(at+d))
		}
	}
	slices.Sort(m.Vertical)
	slices.Sort(m.Slash)
	m.Vertical, m.Slash = slices.Compact(m.Vertical), slices.Compact(m.Slash)
	return m
}

// visible counts the pairs of the first head's mask.
func visible(s *Sparse, rows []int32) (n int) {
	m := &s.Heads[0]
	for r, q := range rows {
		switch {
		case m.Dense:
			n += int(q) + 1
		case m.Block > 0:
			for _, c := range m.Cols[m.Start[r/m.Block]:m.Start[r/m.Block+1]] {
				n += min(m.Block, int(q)+1-int(c)*m.Block)
			}
		default:
			at, _ := slices.BinarySearch(m.Vertical, q+1)
			n += at
			for _, d := range m.Slash {
				if _, both := slices.BinarySearch(m.Vertical, q-d); d <= q && !both {
					n++
				}
			}
		}
	}
	return n
}
