package attention

import (
	"math"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// Attend is attention in plain loops.
func Attend(pool *kernels.Pool, ph kernels.Phase, p Params, seqs []Seq) {
	p.check(seqs)
	for i := range seqs {
		s := &seqs[i]
		pool.Run(p.KVHeads, func(_, g int) { plainHead(&p, s, g) })
	}
}

func plainHead(p *Params, s *Seq, g int) {
	v := &s.Views[g]
	total := v.Tokens()
	ks, vs := make([]float32, 0, total*p.KeyDim), make([]float32, 0, total*p.ValueDim)
	var pos []int32
	for _, part := range []struct {
		l     kvpage.Layout
		pages []Page
	}{{v.Layout, v.Pages}, {v.RecentLayout, v.Recent}} {
		for _, pg := range part.pages {
			for slot := range pg.N {
				ks, vs = ks[:len(ks)+p.KeyDim], vs[:len(vs)+p.ValueDim]
				kvpage.ReadK(part.l, pg.Data, slot, ks[len(ks)-p.KeyDim:])
				kvpage.ReadV(part.l, pg.Data, slot, vs[len(vs)-p.ValueDim:])
				pos = append(pos, pg.Pos[slot])
			}
		}
	}
	group := p.Heads / p.KVHeads
	w := make([]float32, total)
	for r, at := range s.Pos {
		for h := g * group; h < (g+1)*group; h++ {
			plainRow(p, s, r, h, at, ks, vs, pos, w)
		}
	}
}

func plainRow(p *Params, s *Seq, r, h int, at int32, ks, vs []float32, pos []int32, w []float32) {
	q := s.Q[(r*p.Heads+h)*p.KeyDim:][:p.KeyDim]
	out := s.Out[(r*p.Heads+h)*p.ValueDim:][:p.ValueDim]
	top := float32(math.Inf(-1))
	if p.Sinks != nil {
		top = p.Sinks[h]
	}
	for t := range w {
		d := int(at) - int(pos[t])
		if d < 0 || p.Window > 0 && d >= p.Window {
			w[t] = float32(math.Inf(-1))
			continue
		}
		x := kernels.Dot(q, ks[t*p.KeyDim:(t+1)*p.KeyDim]) * p.Scale
		if p.Softcap > 0 {
			x = float32(float64(p.Softcap) * math.Tanh(float64(x/p.Softcap)))
		}
		w[t] = x
		top = max(top, x)
	}
	clear(out)
	if math.IsInf(float64(top), -1) {
		clear(w)
		return
	}
	var sum float64
	if p.Sinks != nil {
		sum = math.Exp(float64(p.Sinks[h] - top))
	}
	for t := range w {
		e := math.Exp(float64(w[t] - top))
		w[t] = float32(e)
		sum += e
	}
	for t := range w {
		w[t] = float32(float64(w[t]) / sum)
		if w[t] != 0 {
			kernels.Axpy(out, w[t], vs[t*p.ValueDim:(t+1)*p.ValueDim])
		}
	}
	if m := s.Mass; m != nil && r >= m.FromRow {
		if m.Sum != nil {
			kernels.Add(m.Sum[h], w)
		}
		if m.Rows != nil {
			copy(m.Rows[h][(r-m.FromRow)*len(w):], w)
		}
	}
}
