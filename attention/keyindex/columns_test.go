package keyindex

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"

	"terrace/internal/kvpage"
)

// TestColumnScores: any number of rows scores as plain loops over the same half-precision numbers do.
func TestColumnScores(t *testing.T) {
	for _, rows := range []int{1, 3, 4, 13, 16, 19, 64, 70} {
		for _, heads := range []int{1, 3, 5} {
			t.Run(fmt.Sprintf("rows%d/heads%d", rows, heads), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(rows), uint64(heads)))
				const columns = 53
				s := NewColumns(kvpage.F16, rows)
				x := make([][]float32, columns)
				for i := range x {
					x[i] = make([]float32, rows)
					for d := range x[i] {
						x[i][d] = float16.Fromfloat32(float32(r.NormFloat64())).Float32()
					}
					s.Put(i, x[i])
				}
				q := make([]float32, heads*rows)
				for i := range q {
					q[i] = float32(r.NormFloat64())
				}
				got := make([]float32, heads*columns)
				s.Score(got, q, heads)
				for h := range heads {
					for i := range x {
						want := 0.0
						for d, v := range x[i] {
							want += float64(v) * float64(q[h*rows+d])
						}
						if g := float64(got[h*columns+i]); math.Abs(g-want) > 1e-4*(1+math.Abs(want)) {
							t.Fatalf("head %d, column %d: %g, want %g", h, i, g, want)
						}
					}
				}
			})
		}
	}
}
