package attention

import (
	"fmt"
	"math"
	"testing"

	"terrace/internal/kernels"
)

// TestMerge cuts the tokens of each row into three parts, one of them empty in some heads, attends to each by itself, and
// compares what they merge to with the float64 oracle over all of them; LogSum is compared with the oracle's own, and a single part must come
// out to the bit.
func TestMerge(t *testing.T) {
	for _, c := range attendCases() {
		if c.sel || c.withMass && c.p.Sinks == nil || c.late > 0 {
			continue
		}
		for _, ph := range []kernels.Phase{kernels.Exact, kernels.Decode} {
			t.Run(fmt.Sprint(c.name, ph), func(t *testing.T) { mergeCase(t, c, ph) })
		}
	}
}

func mergeCase(t *testing.T, c attendCase, ph kernels.Phase) {
	c.withMass = false
	const rows = 3
	whole := c.make(11, rows)
	want, _ := oracle(c.p, &whole)
	all := norms(ph, c.p, whole)
	limit := 6e-6
	if e := largestError(whole.Out, want); e > limit {
		t.Fatalf("all tokens at once: error %.2g", e)
	}
	var parts [][]Partial
	for part := range 3 {
		s, p := c.make(11, rows), c.p
		if part > 0 {
			p.Sinks = nil
		}
		s.Select = make([][]int32, len(s.Views))
		for g := range s.Views {
			s.Select[g] = []int32{}
			for i := range s.Views[g].Tokens() {
				if i%7%3 == part && (part != 1 || g == 0) || part == 0 && g > 0 && i%7%3 == 1 {
					s.Select[g] = append(s.Select[g], int32(i))
				}
			}
		}
		n := norms(ph, p, s)
		for r := range rows {
			if part == 0 {
				parts = append(parts, nil)
			}
			parts[r] = append(parts[r], row(&s, n, c.p, r))
		}
	}
	got := make([]float32, len(want))
	for r := range rows {
		w := c.p.Heads * c.p.ValueDim
		dst := Partial{Out: got[r*w : (r+1)*w], Norm: *NewNorm(1, c.p.Heads)}
		Merge(&dst, c.p.Heads, parts[r])
		for h, lse := range dst.LogSum {
			if d := math.Abs(float64(lse - all.LogSum[r*c.p.Heads+h])); d > 2e-5 || dst.Max[h] != all.Max[r*c.p.Heads+h] {
				t.Errorf("row %d, head %d: merged norm %g %g, of all tokens %g %g", r, h, dst.Max[h], lse, all.Max[r*c.p.Heads+h], all.LogSum[r*c.p.Heads+h])
			}
		}
		one := Partial{Out: make([]float32, w), Norm: *NewNorm(1, c.p.Heads)}
		Merge(&one, c.p.Heads, parts[r][:1])
		for i, x := range one.Out {
			if x != parts[r][0].Out[i] {
				t.Fatalf("row %d: a single part has changed from %g to %g", r, parts[r][0].Out[i], x)
			}
		}
	}
	if e := largestError(got, want); e > limit {
		t.Errorf("merged: error %.2g of the largest output, want at most %.2g", e, limit)
	}
}

// norms attends and returns the rows' norms.
func norms(ph kernels.Phase, p Params, s Seq) *Norm {
	n := NewNorm(len(s.Pos), p.Heads)
	s.Norm = n
	pool := kernels.NewPool(1)
	defer pool.Close()
	Attend(pool, ph, p, []Seq{s})
	return n
}

func row(s *Seq, n *Norm, p Params, r int) Partial {
	w := p.Heads * p.ValueDim
	return Partial{Out: s.Out[r*w : (r+1)*w], Norm: Norm{Max: n.Max[r*p.Heads : (r+1)*p.Heads], LogSum: n.LogSum[r*p.Heads : (r+1)*p.Heads]}}
}
