package attention

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"terrace/internal/kvpage"
)

// TestAppendEqualsPages: Append writes the bytes that kvpage.Append writes, special numbers included.
func TestAppendEqualsPages(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		for _, e := range []kvpage.Elem{kvpage.F32, kvpage.F16, kvpage.BF16, kvpage.I8, kvpage.I4, kvpage.I3, kvpage.I2} {
			for i, dim := range []int{16, 64, 96, 256, 7, 64, 96, 7} {
				l := kvpage.Layout{K: e, V: e, KeyDim: dim, ValueDim: dim, Tokens: 3 * e.KeyGroup(), TokenMajor: i > 4}
				if l.Validate() != nil {
					continue
				}
				group := e.KeyGroup()
				for _, c := range [][2]int{{0, 3 * group}, {0, group}, {group, group + 1}, {3, 40}, {47, 1}, {0, 5}} {
					slot, n := c[0], c[1]
					if e >= kvpage.I8 && slot%group != 0 {
						continue
					}
					k, v := maker{Rand: rnd}.floats(n*(dim+5), 3), maker{Rand: rnd}.floats(n*(dim+2), 3)
					for i, x := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), 1e-8, -1e-41, 65519, 65520, 1e38, 0} {
						k[(i*7)%len(k)], v[(i*5)%len(v)] = float32(x), float32(x)
					}
					if e >= kvpage.I8 { // groups with a special number first, zeros of both signs, and numbers too small for a scale
						for at, x := range map[int]float64{dim + 2: math.NaN(), 2 * (dim + 2): math.Inf(1), 3 * (dim + 2): math.Inf(-1)} {
							v[at%len(v)] = float32(x)
						}
						for r := range n {
							k[r*(dim+5)+1], k[r*(dim+5)+2] = float32(math.Copysign(0, float64(r%3)-1)), float32(r)*1e-9
						}
						for d := range dim {
							v[4*(dim+2)%(n*(dim+2))+d] = float32(math.Copysign(max(0, float64(d%5-3)), float64(d%3)-1))
						}
					}
					got, want := make([]byte, l.PageBytes()), make([]byte, l.PageBytes())
					Append(l, got, slot, n, k, dim+5, v, dim+2)
					kvpage.Append(l, want, slot, n, k, dim+5, v, dim+2)
					if !bytes.Equal(got, want) {
						t.Fatalf("%v: %d tokens from slot %d: bytes differ", l, n, slot)
					}
				}
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, e := range []kvpage.Elem{kvpage.F16, kvpage.BF16, kvpage.F32, kvpage.I8, kvpage.I4, kvpage.I3, kvpage.I2} {
		b.Run(fmt.Sprint(e), func(b *testing.B) {
			n := e.PageTokens()
			l := kvpage.Layout{K: e, V: e, KeyDim: 64, ValueDim: 64, Tokens: n}
			page := make([]byte, l.PageBytes())
			k := maker{Rand: rand.New(rand.NewPCG(1, 1))}.floats(n*192, 1)
			b.SetBytes(int64(l.PageBytes()))
			b.ReportAllocs()
			for b.Loop() {
				Append(l, page, 0, n, k, 192, k, 192)
			}
		})
	}
}
