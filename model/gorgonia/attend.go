package gorgonia

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kvpage"
	"terrace/model"
)

// maxScores bounds the score matrix of one graph: longer prompts are computed in blocks of rows.
const maxScores = 1 << 22

// hiddenScore is what the mask adds to the score of a key that a query does not see: its weight underflows to zero.
const hiddenScore = -1e30

// Attend implements model.Backend: one graph for each sequence, KV head and block of rows.
func (b *backend) Attend(_ *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	n := q.Shape()[0]
	p, err := b.m.AttentionParams(layer)
	if err != nil {
		return nil, err
	}
	out, at := make([]float32, n*p.Heads*p.ValueDim), 0
	for i := range seqs {
		s := &seqs[i]
		if s.Norm != nil {
			return nil, fmt.Errorf("gorgonia: attention that estimates are mixed with: %w", model.ErrUnsupported)
		}
		rows := len(s.Pos)
		if at+rows > n {
			return nil, fmt.Errorf("gorgonia: sequences hold more than the pass's %d rows", n)
		}
		s.Q, s.Out = floats(q)[at*p.Heads*p.KeyDim:(at+rows)*p.Heads*p.KeyDim], out[at*p.Heads*p.ValueDim:(at+rows)*p.Heads*p.ValueDim]
		at += rows
		if s.ColumnSums != nil {
			for _, row := range s.ColumnSums.Rows {
				clear(row)
			}
		}
		for g := range s.Views {
			if err := b.attendHead(&p, s, g); err != nil {
				return nil, fmt.Errorf("gorgonia: layer %d, KV head %d: %w", layer, g, err)
			}
		}
	}
	if at != n {
		return nil, fmt.Errorf("gorgonia: sequences hold %d rows, the pass has %d", at, n)
	}
	return matrix(n, p.Heads*p.ValueDim, out), nil
}

// tokens are the keys and values that the queries of one KV head may see.
type tokens struct {
	k     []float32 // [t, dk]
	v     []float32 // [t, dv]
	pos   []int32
	index []int // number in view order
	total int   // tokens of the view, chosen or not
}

// gather reads the view's tokens, those of chosen only where it is not nil.
func gather(v *attention.View, p *attention.Params, chosen []int32) *tokens {
	t := &tokens{}
	read := func(l kvpage.Layout, pages []attention.Page) {
		for i := range pages {
			page := &pages[i]
			for slot := range page.N {
				at := t.total
				t.total++
				if chosen != nil {
					if len(chosen) == 0 || int(chosen[0]) != at {
						continue
					}
					chosen = chosen[1:]
				}
				t.k, t.v = append(t.k, make([]float32, p.KeyDim)...), append(t.v, make([]float32, p.ValueDim)...)
				kvpage.ReadK(l, page.Data, slot, t.k[len(t.k)-p.KeyDim:])
				kvpage.ReadV(l, page.Data, slot, t.v[len(t.v)-p.ValueDim:])
				t.pos, t.index = append(t.pos, page.Pos[slot]), append(t.index, at)
			}
		}
	}
	read(v.Layout, v.Pages)
	read(v.RecentLayout, v.Recent)
	return t
}

// attendHead computes the rows of one sequence for the query heads of one KV head.
func (b *backend) attendHead(p *attention.Params, s *attention.Seq, g int) error {
	var chosen []int32
	if s.Select != nil {
		chosen = s.Select[g]
	}
	t := gather(&s.Views[g], p, chosen)
	group := p.Heads / p.KVHeads
	if len(t.pos) == 0 {
		for r := range s.Pos {
			clear(s.Out[(r*p.Heads+g*group)*p.ValueDim:][:group*p.ValueDim])
		}
		return nil
	}
	block := max(1, maxScores/(group*len(t.pos)))
	for from := 0; from < len(s.Pos); from += block {
		if err := b.attendRows(p, s, g, t, from, min(from+block, len(s.Pos))); err != nil {
			return err
		}
	}
	return nil
}

// attendRows computes rows [from, to): softmax(q·kᵀ + mask)·v, all query heads of the group in one matrix, row r and head h
// at r·group+h.
func (b *backend) attendRows(p *attention.Params, s *attention.Seq, g int, t *tokens, from, to int) error {
	group, n, count := p.Heads/p.KVHeads, to-from, len(t.pos)
	q := make([]float32, 0, n*group*p.KeyDim)
	mask, sees := make([]float32, n*group*count), make([]bool, n*group)
	for r := range n {
		q = append(q, s.Q[((from+r)*p.Heads+g*group)*p.KeyDim:][:group*p.KeyDim]...)
		for h := range group {
			i := r*group + h
			for j, pos := range t.pos {
				if visible(p, s, g*group+h, from+r, pos) {
					sees[i] = true
				} else {
					mask[i*count+j] = hiddenScore
				}
			}
		}
	}
	weights, out, err := b.attentionGraph(p, g, t, q, mask)
	if err != nil {
		return err
	}
	width := len(weights) / (n * group)
	for i := range n * group {
		row, head := from+i/group, g*group+i%group
		dst := s.Out[(row*p.Heads+head)*p.ValueDim:][:p.ValueDim]
		if !sees[i] {
			clear(dst)
			continue
		}
		copy(dst, out[i*p.ValueDim:])
		if s.ColumnSums != nil && row >= s.ColumnSums.FromRow {
			t.addMass(s.ColumnSums, head, row, weights[i*width:][:count])
		}
	}
	return nil
}

// attentionGraph returns the weights [rows, count (+1 with a sink)] and the output [rows, dv].
func (b *backend) attentionGraph(p *attention.Params, g int, t *tokens, q, mask []float32) (weights, out []float32, err error) {
	rows, count := len(q)/p.KeyDim, len(t.pos)
	keys, values := make([]float32, len(t.k)), t.v
	for j := range count {
		for d := range p.KeyDim {
			keys[d*count+j] = t.k[j*p.KeyDim+d]
		}
	}
	s := b.sheet()
	scores := s.scale(s.matmul(s.in(matrix(rows, p.KeyDim, q)), s.in(matrix(p.KeyDim, count, keys))), p.Scale)
	scores = s.add(s.softcap(scores, p.Softcap), s.in(matrix(rows, count, mask)))
	if p.Sinks != nil {
		// A sink is a key with a fixed score and no value.
		group := p.Heads / p.KVHeads
		sink := make([]float32, rows)
		for r := range sink {
			sink[r] = p.Sinks[g*group+r%group]
		}
		scores = s.binary(func(x, y node) (node, error) { return gorgonia.Concat(1, x, y) }, scores, s.in(matrix(rows, 1, sink)))
		values, count = append(append([]float32(nil), t.v...), make([]float32, p.ValueDim)...), count+1
	}
	w := s.softmax(scores)
	got, err := s.run(w, s.matmul(w, s.in(matrix(count, p.ValueDim, values))))
	if err != nil {
		return nil, nil, err
	}
	return floats(got[0]), floats(got[1]), nil
}

// addMass hands the weights of one row and head on.
func (t *tokens) addMass(m *attention.ColumnSums, head, row int, weights []float32) {
	for j, w := range weights {
		if m.Sum != nil && m.Sum[head] != nil {
			m.Sum[head][t.index[j]] += w
		}
		if m.Rows != nil {
			m.Rows[head][(row-m.FromRow)*t.total+t.index[j]] = w
		}
	}
}
