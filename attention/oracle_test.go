package attention

import (
	"math"
	"math/rand/v2"
	"testing"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// oracleToken is a token of a view as float64 vectors, read through kvpage.
type oracleToken struct {
	k, v []float64
	pos  int32
}

func oracleTokens(v *View) []oracleToken {
	var out []oracleToken
	for i, pages := range [][]Page{v.Pages, v.Recent} {
		l := [...]kvpage.Layout{v.Layout, v.RecentLayout}[i]
		k, val := make([]float32, l.KeyDim), make([]float32, l.ValueDim)
		for _, p := range pages {
			for slot := range p.N {
				kvpage.ReadK(l, p.Data, slot, k)
				kvpage.ReadV(l, p.Data, slot, val)
				out = append(out, oracleToken{wide(k), wide(val), p.Pos[slot]})
			}
		}
	}
	return out
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// oracleWeights are the softmax weights of one query over the tokens of its view: plain float64 loops over the formula.
func oracleWeights(p *Params, q []float32, at int32, h int, tokens []oracleToken, selected func(i int) bool) []float64 {
	scores := make([]float64, len(tokens))
	top := math.Inf(-1)
	if p.Sinks != nil {
		top = float64(p.Sinks[h])
	}
	for i, t := range tokens {
		scores[i] = math.Inf(-1)
		d := int64(at) - int64(t.pos)
		if d < 0 || p.Window > 0 && d >= int64(p.Window) || !selected(i) {
			continue
		}
		s := 0.0
		for j, x := range q {
			s += float64(x) * t.k[j]
		}
		s *= float64(p.Scale)
		if p.Softcap > 0 {
			s = float64(p.Softcap) * math.Tanh(s/float64(p.Softcap))
		}
		scores[i] = s
		top = max(top, s)
	}
	sum := 0.0
	if p.Sinks != nil {
		sum = math.Exp(float64(p.Sinks[h]) - top)
	}
	for i := range scores {
		if math.IsInf(top, -1) {
			scores[i] = 0
			continue
		}
		scores[i] = math.Exp(scores[i] - top)
		sum += scores[i]
	}
	for i := range scores {
		if sum > 0 {
			scores[i] /= sum
		}
	}
	return scores
}

// oracle computes Out and the weights [row][head][token] of a sequence.
func oracle(p Params, s *Seq) (out []float64, weights [][][]float64) {
	out = make([]float64, len(s.Pos)*p.Heads*p.ValueDim)
	group := p.Heads / p.KVHeads
	var held [][]oracleToken
	for g := range p.KVHeads {
		held = append(held, oracleTokens(&s.Views[g]))
	}
	for r, at := range s.Pos {
		var perHead [][]float64
		for h := range p.Heads {
			tokens := held[h/group]
			selected := func(int) bool { return true }
			if s.Select != nil && s.Select[h/group] != nil {
				in := map[int]bool{}
				for _, i := range s.Select[h/group] {
					in[int(i)] = true
				}
				selected = func(i int) bool { return in[i] }
			}
			w := oracleWeights(&p, s.Q[(r*p.Heads+h)*p.KeyDim:][:p.KeyDim], at, h, tokens, selected)
			for i, t := range tokens {
				for d := range p.ValueDim {
					out[(r*p.Heads+h)*p.ValueDim+d] += w[i] * t.v[d]
				}
			}
			perHead = append(perHead, w)
		}
		weights = append(weights, perHead)
	}
	return out, weights
}

// maker builds random views.
type maker struct {
	*rand.Rand
	holes bool // leave positions and slots out
}

func (m maker) floats(n int, size float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(m.NormFloat64() * size)
	}
	return x
}

func (m maker) pages(l kvpage.Layout, n int, pos *int32) []Page {
	var pages []Page
	for n > 0 {
		pg := Page{Data: make([]byte, l.PageBytes()), N: min(n, l.Tokens)}
		for i := range pg.Data {
			pg.Data[i] = byte(m.Uint32()) // unused slots hold anything, NaN included
		}
		if m.holes && m.IntN(4) == 0 {
			pg.N = 1 + m.IntN(pg.N)
		}
		var k, v []float32
		for range pg.N {
			if m.holes {
				*pos += int32(m.IntN(3))
			}
			pg.Pos = append(pg.Pos, *pos)
			*pos++
			k, v = append(k, m.floats(l.KeyDim, 1)...), append(v, m.floats(l.ValueDim, 1)...)
		}
		kvpage.Append(l, pg.Data, 0, pg.N, k, l.KeyDim, v, l.ValueDim)
		pages = append(pages, pg)
		n -= pg.N
	}
	return pages
}

// seq makes a sequence of n rows at the end of a context of tokens.
func (m maker) seq(p Params, l kvpage.Layout, recent kvpage.Elem, tokens, recentTokens, n int) Seq {
	s := Seq{Q: m.floats(n*p.Heads*p.KeyDim, 1), Out: m.floats(n*p.Heads*p.ValueDim, 1)}
	var end int32
	for range p.KVHeads {
		v := View{Layout: l, RecentLayout: l}
		v.RecentLayout.K, v.RecentLayout.V = recent, recent
		var pos int32
		v.Pages = m.pages(v.Layout, tokens, &pos)
		v.Recent = m.pages(v.RecentLayout, recentTokens, &pos)
		end = max(end, pos)
		s.Views = append(s.Views, v)
	}
	for r := range n {
		s.Pos = append(s.Pos, end-int32(n)+int32(r))
	}
	return s
}

// largestError is the largest |got-want| relative to the largest |want|.
func largestError(got []float32, want []float64) float64 {
	top, worst := 0.0, 0.0
	for i := range want {
		top = max(top, math.Abs(want[i]))
		d := math.Abs(float64(got[i]) - want[i])
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst / max(top, 1e-6)
}

// eachPath runs f on every CPU path of this machine.
func eachPath(t *testing.T, f func(t *testing.T)) {
	for _, path := range kernels.Available() {
		t.Run(path, func(t *testing.T) {
			if err := kernels.Select(path); err != nil {
				t.Fatal(err)
			}
			defer kernels.Select("")
			f(t)
		})
	}
}
