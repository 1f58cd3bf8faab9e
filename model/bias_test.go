package model

import (
	"math"
	"slices"
	"testing"
)

// TestGiveWay: choices of one row by hand.
func TestGiveWay(t *testing.T) {
	logs := func(weights ...float64) (out []float32) {
		for _, w := range weights {
			out = append(out, float32(math.Log(w)))
		}
		return out
	}
	logits := logs(0.30, 0.25, 0.20, 0.15, 0.10)
	for _, c := range []struct {
		name   string
		margin float64
		prefer []bool
		router Router
		bias   []float32
		want   []int
		moved  int
	}{
		{name: "no preference", margin: 0.9, want: []int{0, 1}},
		{name: "within the margin the least gives way", margin: 0.25, prefer: []bool{2: true, 4: false}, want: []int{0, 2}, moved: 1},
		{name: "beyond it none does", margin: 0.15, prefer: []bool{2: true, 4: false}, want: []int{0, 1}},
		{name: "the best of those in memory comes", margin: 0.9, prefer: []bool{2: true, 3: true, 4: true}, want: []int{2, 3}, moved: 2},
		{name: "one in memory stays", margin: 0.9, prefer: []bool{1: true, 4: true}, want: []int{1, 4}, moved: 1},
		{name: "as far as there are any", margin: 0.9, prefer: []bool{4: true}, want: []int{0, 4}, moved: 1},
		{name: "all in memory", margin: 0.9, prefer: []bool{true, true, true, true, true}, want: []int{0, 1}},
		{name: "of the router's groups alone", margin: 0.9, prefer: []bool{2: true, 4: true, 5: true}, router: Router{Groups: 2, GroupsUsed: 1, GroupBest: 1}, want: []int{0, 2}, moved: 1},
		{name: "with a bias of the router's own", margin: 0.5, prefer: []bool{2: true, 4: false}, bias: []float32{0, 0, 0, 1, 0}, want: []int{2, 3}, moved: 1},
	} {
		s := &moeScratch{prefer: c.prefer, margin: c.margin}
		row := slices.Clone(logits)
		if c.router.Groups > 0 {
			row = append(row, float32(math.Log(0.12))) // two groups of three
		}
		if c.prefer != nil {
			s.prefer = append(c.prefer, make([]bool, len(row)-len(c.prefer))...)
		}
		m := &Config{Mixture: Mixture{Experts: len(row), TopK: 2, NormTopK: true, Router: c.router}}
		s.route(m, row, c.bias, 1)
		got, sum := []int(nil), float32(0)
		for e, rows := range s.rows {
			if len(rows) > 0 {
				got = append(got, e)
			}
			sum += s.share[e]
		}
		if !slices.Equal(got, c.want) || s.moved != c.moved || math.Abs(float64(sum)-1) > 1e-6 {
			t.Errorf("%s: experts %v, want %v; %d moved, want %d; weights add up to %g", c.name, got, c.want, s.moved, c.moved, sum)
		}
		if e, other := c.want[0], c.want[1]; s.share[e] == 0 || math.Abs(float64(s.share[e]/s.share[other])-math.Exp(float64(row[e]-row[other]))) > 1e-5 {
			t.Errorf("%s: weights %v are not those of the router", c.name, s.share)
		}
	}
}
