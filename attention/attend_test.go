package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

type attendCase struct {
	name                 string
	p                    Params
	k, v, recent         kvpage.Elem
	tokens, late, page   int
	holes, sel, withMass bool
	latent               bool // values are keys, which lie token by token
}

func params(heads, kvHeads, dim int) Params {
	return Params{Heads: heads, KVHeads: kvHeads, KeyDim: dim, ValueDim: dim, Scale: float32(1 / math.Sqrt(float64(dim)))}
}

func attendCases() []attendCase {
	smol, gemma := params(9, 3, 64), params(4, 1, 256)
	window, capped, sinks, odd, many := smol, smol, smol, params(2, 1, 64), params(6, 1, 32)
	window.Window, capped.Softcap, sinks.Sinks = 100, 2, []float32{0, 1, 2, 3, -4, 5, 0, 0, 1}
	odd.KeyDim, odd.ValueDim = 36, 40
	latent := params(8, 1, 36)
	return []attendCase{
		{name: "f32", p: smol, tokens: 300, page: 16},
		{name: "f16", p: smol, k: kvpage.F16, v: kvpage.F16, tokens: 523, page: 64},
		{name: "bf16", p: smol, k: kvpage.BF16, v: kvpage.BF16, tokens: 130, page: 16},
		{name: "mixed", p: smol, k: kvpage.BF16, v: kvpage.F16, tokens: 65, page: 32},
		{name: "one token", p: smol, k: kvpage.F16, v: kvpage.F16, tokens: 1, page: 16},
		{name: "gemma", p: gemma, k: kvpage.F16, v: kvpage.F16, tokens: 200, page: 16},
		{name: "window", p: window, k: kvpage.F16, v: kvpage.F16, tokens: 500, page: 16, withMass: true},
		{name: "window and holes", p: window, tokens: 500, page: 32, holes: true, withMass: true},
		{name: "softcap", p: capped, tokens: 150, page: 16, holes: true, withMass: true},
		{name: "sinks", p: sinks, k: kvpage.F16, v: kvpage.F16, tokens: 150, page: 16, withMass: true},
		{name: "odd dims", p: odd, k: kvpage.F16, v: kvpage.F16, tokens: 150, page: 16},
		{name: "wide group", p: many, k: kvpage.F16, v: kvpage.BF16, tokens: 150, page: 16, withMass: true},
		{name: "holes", p: smol, k: kvpage.F16, v: kvpage.F16, tokens: 400, page: 64, holes: true, withMass: true},
		{name: "mass", p: smol, k: kvpage.F16, v: kvpage.F16, tokens: 400, page: 16, withMass: true},
		{name: "int8", p: smol, k: kvpage.I8, v: kvpage.I8, tokens: 256, late: 40, page: 16},
		{name: "int8 int4", p: smol, k: kvpage.I8, v: kvpage.I4, recent: kvpage.F16, tokens: 256, late: 40, page: 32, withMass: true},
		{name: "int4", p: gemma, k: kvpage.I4, v: kvpage.I4, recent: kvpage.F16, tokens: 128, late: 33, page: 64},
		{name: "int3", p: smol, k: kvpage.I3, v: kvpage.I3, recent: kvpage.F16, tokens: 256, late: 40, page: 128, withMass: true},
		{name: "int3 int2", p: gemma, k: kvpage.I3, v: kvpage.I2, recent: kvpage.F16, tokens: 256, late: 33, page: 256},
		{name: "int2 odd dims", p: odd, k: kvpage.I2, v: kvpage.I3, recent: kvpage.F16, tokens: 128, late: 5, page: 128},
		{name: "selected", p: smol, k: kvpage.F16, v: kvpage.F16, tokens: 400, page: 16, sel: true, withMass: true},
		{name: "selected holes", p: smol, k: kvpage.F16, v: kvpage.F16, tokens: 400, late: 50, page: 32, holes: true, sel: true, withMass: true},
		{name: "latent", p: latent, k: kvpage.F16, v: kvpage.F16, tokens: 200, page: 32, withMass: true, latent: true},
		{name: "latent selected", p: latent, tokens: 400, page: 16, holes: true, sel: true, withMass: true, latent: true},
	}
}

func (c attendCase) make(seed uint64, rows int) Seq {
	m := maker{rand.New(rand.NewPCG(seed, 1)), c.holes}
	l := kvpage.Layout{K: c.k, V: c.v, KeyDim: c.p.KeyDim, ValueDim: c.p.ValueDim, Tokens: c.page, TokenMajor: c.latent, ValueInKey: c.latent}
	s := m.seq(c.p, l, c.recent, c.tokens, c.late, rows)
	if c.sel {
		for g := range s.Views {
			var chosen []int32
			for i := range s.Views[g].Tokens() {
				if m.IntN(4) == 0 {
					chosen = append(chosen, int32(i))
				}
			}
			s.Select = append(s.Select, chosen)
		}
	}
	if c.withMass {
		s.ColumnSums = &ColumnSums{FromRow: rows / 2}
		for h := range c.p.Heads {
			n := s.Views[h/(c.p.Heads/c.p.KVHeads)].Tokens()
			s.ColumnSums.Sum = append(s.ColumnSums.Sum, make([]float32, n))
			s.ColumnSums.Rows = append(s.ColumnSums.Rows, m.floats((rows-rows/2)*n, 1))
		}
	}
	return s
}

// TestAttend compares every path and phase with the float64 oracle. Limits are relative to the largest output: Exact
// 3e-6, Decode 5e-6 (float32 sums) and what integersAdd, Prefill 2e-2 (inputs and weights rounded to bf16: 2^-9 each).
func TestAttend(t *testing.T) {
	pool := kernels.NewPool(2)
	defer pool.Close()
	for _, c := range attendCases() {
		for _, rows := range []int{1, 14} {
			ref := c.make(7, rows)
			want, weights := oracle(c.p, &ref)
			added := sync.OnceValue(func() float64 { return integersAdd(c, &ref, want, weights) })
			for _, ph := range []kernels.Phase{kernels.Exact, kernels.Decode, kernels.Prefill} {
				limit := [...]float64{kernels.Exact: 3e-6, kernels.Decode: 5e-6, kernels.Prefill: 2e-2}[ph]
				t.Run(fmt.Sprintf("%s/%d/%d", c.name, rows, ph), func(t *testing.T) {
					eachPath(t, func(t *testing.T) {
						s, limit := again(ref), limit
						if ph == kernels.Decode && kernels.HasIntegerKV(kernels.KVElem(c.k)) {
							limit += added()
						}
						Attend(pool, ph, c.p, []Seq{s})
						if e := largestError(s.Out, want); e > limit {
							t.Errorf("error %.2g of the largest output, want at most %.2g", e, limit)
						}
						checkMass(t, c, &s, weights, limit)
					})
				})
			}
		}
	}
}

// again is a sequence with results of its own, of which nothing was computed yet.
func again(s Seq) Seq {
	s.Out = slices.Clone(s.Out)
	if s.ColumnSums != nil {
		sums := *s.ColumnSums
		sums.Sum, sums.Rows = slices.Clone(sums.Sum), slices.Clone(sums.Rows)
		for h := range sums.Sum {
			sums.Sum[h], sums.Rows[h] = slices.Clone(sums.Sum[h]), slices.Clone(sums.Rows[h])
		}
		s.ColumnSums = &sums
	}
	return s
}

// integersAdd is what kernels.HasIntegerKV adds to the error of decoding, relative to the largest output: four standard deviations of
// the output that has most, 1.4e-4 to 4.6e-4 in these cases, of which 0.7e-4 to 2.1e-4 are seen.
//
// A factor f of a code (q·scale of a dimension, w·scale of a token, w being a softmax weight) is rounded to a multiple of
// unit = max|f|/32767, so by an error that is uniform in ±unit/2, of variance unit²/12. With codes c, those of other dimensions and
// tokens being independent,
//
//	of a score:   σ²(t) = unit²/12 · Σ_d c²(t,d)
//	of an output: σ² = Σ_t (w(t)·(v(t)-out))²·σ²(t) + unit²/12 · Σ_t c²(t)
//
// The unit of scores is a group's of keys, of outputs a task's, here that of all tokens. Recent tokens are not quantised.
func integersAdd(c attendCase, s *Seq, want []float64, weights [][][]float64) float64 {
	most, dim := 0.0, c.p.ValueDim
	for h := range c.p.Heads {
		v := &s.Views[h/(c.p.Heads/c.p.KVHeads)]
		tokens := oracleTokens(v)
		n := 0
		for _, p := range v.Pages {
			n += p.N
		}
		values := make([][]func(float64) (scale, code float64), n) // of each token's groups of 64
		for t, token := range tokens[:n] {
			for group := range slices.Chunk(token.v, 64) {
				values[t] = append(values[t], groupOf(c.v, group))
			}
		}
		for r := range weights {
			w, out := weights[r][h], want[(r*c.p.Heads+h)*dim:][:dim]
			scores := scoreVariances(c, s.Q[(r*c.p.Heads+h)*c.p.KeyDim:][:c.p.KeyDim], tokens[:n])
			for d, o := range out {
				sum, squares, unit := 0.0, 0.0, 0.0
				for t := range tokens[:n] {
					x := tokens[t].v
					scale, code := values[t][d/64](x[d])
					unit, squares = max(unit, w[t]*scale/32767), squares+code*code
					sum += w[t] * w[t] * (x[d] - o) * (x[d] - o) * scores[t]
				}
				most = max(most, sum+unit*unit/12*squares)
			}
		}
	}
	top := 0.0
	for _, o := range want {
		top = max(top, math.Abs(o))
	}
	return 4 * math.Sqrt(most) / top
}

// scoreVariances are the variances of the scores of a query, tile by tile.
func scoreVariances(c attendCase, q []float32, tokens []oracleToken) []float64 {
	var out []float64
	for tile := range slices.Chunk(tokens, c.k.KeyGroup()) {
		unit, sums, column := 0.0, make([]float64, len(tile)), make([]float64, len(tile))
		for d := range q {
			for t := range tile {
				column[t] = tile[t].k[d]
			}
			scaleOf := groupOf(c.k, column)
			for t, x := range column {
				scale, code := scaleOf(x)
				unit = max(unit, math.Abs(float64(q[d])*scale)*float64(c.p.Scale)/32767)
				sums[t] += code * code
			}
		}
		for _, s := range sums {
			out = append(out, unit*unit/12*s)
		}
	}
	return out
}

// groupOf gives the scale of a group of numbers and the code of one of them (package kvpage).
func groupOf(e kvpage.Elem, group []float64) func(x float64) (scale, code float64) {
	low, high := slices.Min(group), slices.Max(group)
	scale, from := max(high, -low)/127, 0.0
	switch e {
	case kvpage.I4:
		scale, from = (high-low)/15, low
	case kvpage.I3, kvpage.I2:
		scale, from = (high-low)/7, low // values' levels are finer, and their codes larger by as much
	}
	return func(x float64) (float64, float64) {
		if scale == 0 {
			return 0, 0
		}
		return scale, (x - from) / scale
	}
}

func checkMass(t *testing.T, c attendCase, s *Seq, weights [][][]float64, limit float64) {
	t.Helper()
	if s.ColumnSums == nil {
		return
	}
	for h := range c.p.Heads {
		var rows []float64
		sums := make([]float64, len(s.ColumnSums.Sum[h]))
		for _, w := range weights[s.ColumnSums.FromRow:] {
			rows = append(rows, w[h]...)
			for i, x := range w[h] {
				sums[i] += x
			}
		}
		if e := largestError(s.ColumnSums.Sum[h], sums); e > 3*limit {
			t.Fatalf("head %d: column sums: error %.2g, want at most %.2g", h, e, 3*limit)
		}
		if e := largestError(s.ColumnSums.Rows[h], rows); e > 3*limit {
			t.Fatalf("head %d: row weights: error %.2g, want at most %.2g", h, e, 3*limit)
		}
	}
}

// TestAttendIsStable: a row's bits do not depend on threads, on the other rows and sequences of the call, or on the
// page size (invariant 1).
func TestAttendIsStable(t *testing.T) {
	one, two := kernels.NewPool(1), kernels.NewPool(2)
	defer one.Close()
	defer two.Close()
	c := attendCase{p: params(9, 3, 64), k: kvpage.F16, v: kvpage.F16, tokens: 700, page: 16, withMass: true}
	const rows = 50
	for _, ph := range []kernels.Phase{kernels.Exact, kernels.Decode, kernels.Prefill} {
		want := c.make(3, rows)
		Attend(one, ph, c.p, []Seq{want})
		check := func(what string, got, want []float32) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("phase %d: %s changes the result by %.2g", ph, what, largestError(got, wide(want)))
			}
		}
		again, other := c.make(3, rows), c.make(4, 13)
		Attend(two, ph, c.p, []Seq{other, again})
		check("another sequence and thread", again.Out, want.Out)
		for h := range want.ColumnSums.Sum {
			check("a thread: sums", again.ColumnSums.Sum[h], want.ColumnSums.Sum[h])
		}
		size := c.p.Heads * c.p.ValueDim
		for r := 3; r < rows; r += 9 {
			part := c.make(3, rows)
			Attend(two, ph, c.p, []Seq{{Q: part.Q[r*size:], Pos: part.Pos[r : r+1], Views: part.Views, Out: part.Out[:size]}})
			check("taking the row alone", part.Out[:size], want.Out[r*size:(r+1)*size])
		}
		wider := c.make(3, rows)
		for g := range wider.Views {
			wider.Views[g] = repage(wider.Views[g], 64)
		}
		wider.ColumnSums = nil
		Attend(two, ph, c.p, []Seq{wider})
		check("the page size", wider.Out, want.Out)
	}
}

// TestSumsOfManyRows: column sums over more rows than a task or a strip holds are the oracle's, and neither threads nor
// where the other rows of the call begin change a bit.
func TestSumsOfManyRows(t *testing.T) {
	c := attendCase{p: params(6, 2, 32), k: kvpage.F16, v: kvpage.F16, tokens: 330, late: 50, page: 16, holes: true}
	const rows, from = 150, 21
	draw := func(first int) Seq {
		s := c.make(5, rows)
		size := c.p.Heads * c.p.KeyDim
		s.Q, s.Pos, s.Out = s.Q[first*size:], s.Pos[first:], s.Out[first*size:]
		s.ColumnSums = &ColumnSums{FromRow: from - first}
		for h := range c.p.Heads {
			n := s.Views[h/(c.p.Heads/c.p.KVHeads)].Tokens()
			s.ColumnSums.Sum, s.ColumnSums.Rows = append(s.ColumnSums.Sum, make([]float32, n)), append(s.ColumnSums.Rows, make([]float32, (rows-from)*n))
		}
		return s
	}
	ref := draw(0)
	_, weights := oracle(c.p, &ref)
	for _, ph := range []kernels.Phase{kernels.Exact, kernels.Prefill} {
		limit := [...]float64{kernels.Exact: 3e-6, kernels.Prefill: 2e-2}[ph]
		eachPath(t, func(t *testing.T) {
			var want Seq
			for i, threads := range []int{1, 2, 5} {
				pool := kernels.NewPool(threads)
				s := draw(7 * i)
				Attend(pool, ph, c.p, []Seq{s})
				pool.Close()
				if i == 0 {
					want = s
					checkMass(t, c, &s, weights, limit)
				}
				for h := range s.ColumnSums.Sum {
					if !slices.Equal(s.ColumnSums.Sum[h], want.ColumnSums.Sum[h]) || !slices.Equal(s.ColumnSums.Rows[h], want.ColumnSums.Rows[h]) {
						t.Fatalf("phase %d, head %d: %d threads and %d rows before the sums change them", ph, h, threads, from-7*i)
					}
				}
			}
		})
	}
}

// repage copies a view without holes to pages of another size.
func repage(v View, tokens int) View {
	l := v.Layout
	l.Tokens = tokens
	out := View{Layout: l}
	n := 0
	for _, p := range v.Pages {
		for slot := range p.N {
			if n%tokens == 0 {
				out.Pages = append(out.Pages, Page{Data: make([]byte, l.PageBytes())})
			}
			to := &out.Pages[len(out.Pages)-1]
			k, val := make([]float32, l.KeyDim), make([]float32, l.ValueDim)
			kvpage.ReadK(v.Layout, p.Data, slot, k)
			kvpage.ReadV(v.Layout, p.Data, slot, val)
			kvpage.PutK(l, to.Data, to.N, k)
			kvpage.PutV(l, to.Data, to.N, val)
			to.Pos, to.N = append(to.Pos, p.Pos[slot]), to.N+1
			n++
		}
	}
	return out
}
