package attention

import (
	"fmt"
	"slices"
	"testing"

	"terrace/internal/golden"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// TestRowsTogetherAreRowsAlone: on every path decoded rows have the bits that each has alone, their norms and weights too, whether
// they end in one tile or in two.
func TestRowsTogetherAreRowsAlone(t *testing.T) {
	pool := kernels.NewPool(2)
	defer pool.Close()
	for i, c := range append(attendCases(), attendCase{name: "by token", p: params(9, 3, 64), k: kvpage.F16, v: kvpage.F16, tokens: 320, page: 16}) {
		t.Run(c.name, func(t *testing.T) {
			eachPath(t, func(t *testing.T) {
				if i%3 == 0 || golden.Thorough() {
					rowsTogether(t, pool, c, 2)
				}
				rowsTogether(t, pool, c, 19)
			})
		})
	}
}

func rowsTogether(t *testing.T, pool *kernels.Pool, c attendCase, rows int) {
	t.Helper()
	s := c.make(uint64(rows), rows)
	s.Norm = NewNorm(rows, c.p.Heads)
	for g := range s.Views {
		s.Views[g].Layout.TokenMajor = c.latent || c.name == "by token"
	}
	if s.ColumnSums != nil {
		s.ColumnSums.FromRow = 0
		for h := range s.ColumnSums.Rows {
			s.ColumnSums.Rows[h] = make([]float32, rows*len(s.ColumnSums.Sum[h]))
		}
	}
	Attend(pool, kernels.Decode, c.p, []Seq{s})
	for r := 0; r < rows; r += 1 + rows/5 {
		one := again(s)
		keys, values := c.p.Heads*c.p.KeyDim, c.p.Heads*c.p.ValueDim
		one.Q, one.Out, one.Pos, one.Norm = s.Q[r*keys:][:keys], one.Out[:values], s.Pos[r:r+1], NewNorm(1, c.p.Heads)
		Attend(pool, kernels.Decode, c.p, []Seq{one})
		what := fmt.Sprintf("row %d of %d", r, rows)
		if !slices.Equal(one.Out, s.Out[r*values:][:values]) {
			t.Fatalf("%s: alone it differs by %.2g", what, largestError(one.Out, wide(s.Out[r*values:][:values])))
		}
		if !slices.Equal(one.Norm.Max, s.Norm.Max[r*c.p.Heads:][:c.p.Heads]) || !slices.Equal(one.Norm.LogSum, s.Norm.LogSum[r*c.p.Heads:][:c.p.Heads]) {
			t.Fatalf("%s: alone it has another norm", what)
		}
		for h := range c.p.Heads {
			if c.withMass && !slices.Equal(one.ColumnSums.Rows[h][:len(s.ColumnSums.Sum[h])], s.ColumnSums.Rows[h][r*len(s.ColumnSums.Sum[h]):][:len(s.ColumnSums.Sum[h])]) {
				t.Fatalf("%s, head %d: alone it has other weights", what, h)
			}
		}
	}
}
