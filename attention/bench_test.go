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

// benchViews makes a layer's views with plain pages; contents are random bytes of small finite numbers.
func benchViews(p Params, e kvpage.Elem, tokens, page int) []View {
	l := kvpage.Layout{K: e, V: e, KeyDim: p.KeyDim, ValueDim: p.ValueDim, Tokens: page}
	rng := rand.New(rand.NewPCG(1, 2))
	one := make([]byte, l.PageBytes())
	k := make([]float32, page*max(p.KeyDim, p.ValueDim))
	for i := range k {
		k[i] = rng.Float32()*2 - 1
	}
	kvpage.Append(l, one, 0, page, k, p.KeyDim, k, p.ValueDim)
	var views []View
	for range p.KVHeads {
		v := View{Layout: l}
		for t := 0; t < tokens; t += page {
			pg := Page{Data: append([]byte(nil), one...), N: min(page, tokens-t)}
			for i := range pg.N {
				pg.Pos = append(pg.Pos, int32(t+i))
			}
			v.Pages = append(v.Pages, pg)
		}
		views = append(views, v)
	}
	return views
}

var benchModels = []struct {
	name   string
	p      Params
	layers int
}{{"smollm2", params(9, 3, 64), 30}, {"gemma3", params(4, 1, 256), 3}}

// fastest runs the benchmark loop and returns its quickest round: what the machine does when nobody disturbs it.
func fastest(b *testing.B, f func()) time.Duration {
	best := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
	}
	return best
}

// BenchmarkDecode reads the KV of all layers of one token: bytes as at that depth, so that nothing stays in a cache.
func BenchmarkDecode(b *testing.B) {
	for _, m := range benchModels {
		for _, depth := range []int{512, 8000} {
			for _, e := range []kvpage.Elem{kvpage.F16, kvpage.BF16, kvpage.F32, kvpage.I8, kvpage.I4, kvpage.I3, kvpage.I2} {
				layers := make([][]View, m.layers)
				for i := range layers {
					layers[i] = benchViews(m.p, e, depth, e.PageTokens())
				}
				bytes := int64(m.layers * m.p.KVHeads * len(layers[0][0].Pages) * layers[0][0].Layout.PageBytes())
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%s/%d/%v/threads=%d", m.name, depth, e, threads), func(b *testing.B) {
						pool := kernels.NewPool(threads)
						defer pool.Close()
						seqs := []Seq{{Q: make([]float32, m.p.Heads*m.p.KeyDim), Pos: []int32{int32(depth)}, Out: make([]float32, m.p.Heads*m.p.ValueDim)}}
						for i := range seqs[0].Q {
							seqs[0].Q[i] = float32(i%7) / 7
						}
						b.SetBytes(bytes)
						b.ReportAllocs()
						best := fastest(b, func() {
							for l := range layers {
								seqs[0].Views = layers[l]
								Attend(pool, kernels.Decode, m.p, seqs)
							}
						})
						b.ReportMetric(float64(bytes)/best.Seconds()/1e9, "bestGB/s")
					})
				}
			}
		}
	}
}

// BenchmarkRows reads the KV of all layers for the rows of one text that a guessed continuation takes (--speculate).
func BenchmarkRows(b *testing.B) {
	const depth = 2500
	m := benchModels[0]
	for _, e := range []kvpage.Elem{kvpage.F16, kvpage.I8} {
		layers := make([][]View, m.layers)
		for i := range layers {
			layers[i] = benchViews(m.p, e, depth, 16)
		}
		for _, rows := range []int{1, 2, 3, 4, 8, 16} {
			b.Run(fmt.Sprintf("%v/%d", e, rows), func(b *testing.B) {
				pool := kernels.NewPool(2)
				defer pool.Close()
				seqs := []Seq{{Q: make([]float32, rows*m.p.Heads*m.p.KeyDim), Out: make([]float32, rows*m.p.Heads*m.p.ValueDim)}}
				for i := range seqs[0].Q {
					seqs[0].Q[i] = float32(i%7) / 7
				}
				for r := range rows {
					seqs[0].Pos = append(seqs[0].Pos, int32(depth-rows+r))
				}
				b.ReportAllocs()
				best := fastest(b, func() {
					for l := range layers {
						seqs[0].Views = layers[l]
						Attend(pool, kernels.Decode, m.p, seqs)
					}
				})
				b.ReportMetric(float64(best.Microseconds())/1e3, "best-ms")
			})
		}
	}
}

// BenchmarkSelected attends to 1,024 of 8,000 tokens of every layer, single ones and whole tiles, in both key orders.
func BenchmarkSelected(b *testing.B) {
	const depth, budget = 8000, 1024
	m := benchModels[0]
	rnd := rand.New(rand.NewPCG(1, 1))
	scattered, tiles := rnd.Perm(depth)[:budget], rnd.Perm(depth / 16)[:budget/16]
	for _, what := range []string{"tokens", "tiles"} {
		chosen := make([]int32, 0, budget)
		for i := range int32(depth) {
			if what == "tokens" && slices.Contains(scattered, int(i)) || what == "tiles" && slices.Contains(tiles, int(i/16)) {
				chosen = append(chosen, i)
			}
		}
		for _, order := range []bool{false, true} {
			layers := make([][]View, m.layers)
			for i := range layers {
				layers[i] = benchViews(m.p, kvpage.F16, depth, 16)
				for g := range layers[i] {
					layers[i][g].Layout.TokenMajor = order
				}
			}
			picks := [][]int32{chosen, chosen, chosen}
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/by token=%v/threads=%d", what, order, threads), func(b *testing.B) {
					pool := kernels.NewPool(threads)
					defer pool.Close()
					seqs := []Seq{{Q: make([]float32, m.p.Heads*m.p.KeyDim), Pos: []int32{depth}, Out: make([]float32, m.p.Heads*m.p.ValueDim), Select: picks}}
					b.ReportAllocs()
					best := fastest(b, func() {
						for l := range layers {
							seqs[0].Views = layers[l]
							Attend(pool, kernels.Decode, m.p, seqs)
						}
					})
					b.ReportMetric(float64(m.layers*m.p.KVHeads*budget*256)/best.Seconds()/1e9, "bestGB/s")
				})
			}
		}
	}
}

// BenchmarkPrefill is one layer's chunk of 512 rows at the end of a context.
func BenchmarkPrefill(b *testing.B) {
	for _, m := range benchModels {
		for _, depth := range []int{512, 2048, 8000} {
			views := benchViews(m.p, kvpage.F16, depth, 16)
			const rows = 512
			s := Seq{Q: make([]float32, rows*m.p.Heads*m.p.KeyDim), Views: views, Out: make([]float32, rows*m.p.Heads*m.p.ValueDim)}
			for i := range s.Q {
				s.Q[i] = float32(i%7)/7 - 0.5
			}
			for r := range rows {
				s.Pos = append(s.Pos, int32(depth-rows+r))
			}
			pairs := float64(rows)*float64(depth-rows) + rows*(rows+1)/2
			flops := pairs * float64(2*m.p.Heads*(m.p.KeyDim+m.p.ValueDim))
			for _, what := range []string{"plain", "sums", "last64"} {
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%s/%d/%s/threads=%d", m.name, depth, what, threads), func(b *testing.B) {
						pool := kernels.NewPool(threads)
						defer pool.Close()
						s := s
						if what != "plain" {
							s.ColumnSums = &ColumnSums{}
							if what == "last64" {
								s.ColumnSums.FromRow = rows - 64
							}
							for range m.p.Heads {
								s.ColumnSums.Sum = append(s.ColumnSums.Sum, make([]float32, depth))
							}
						}
						seqs := []Seq{s}
						b.ReportAllocs()
						best := fastest(b, func() { Attend(pool, kernels.Prefill, m.p, seqs) })
						b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
						b.ReportMetric(flops/best.Seconds()/1e9, "bestGFLOPS")
					})
				}
			}
		}
	}
}
