package kvmanager

import (
	"fmt"

	"terrace/attention"
	"terrace/internal/kvpage"
)

// batch is tokens on their way from one kind of page to another.
type batch struct {
	k, v []float32
	pos  []int32
}

// read takes the tokens at the given indices of a view.
func (m *Manager) read(v *attention.View, index []int, pos []int32) batch {
	dk, dv := m.o.Layout.KeyDim, m.o.Layout.ValueDim
	r := batch{k: make([]float32, len(index)*dk), v: make([]float32, len(index)*dv), pos: make([]int32, len(index))}
	for i, x := range index {
		m.bulk.Keys(v, x, x+1, r.k[i*dk:(i+1)*dk])
		m.bulk.Values(v, x, x+1, r.v[i*dv:(i+1)*dv])
		r.pos[i] = pos[x]
	}
	return r
}

// settle quantises the oldest tiles of the window until it is less than a tile larger than it should be (KIVI: keys share
// a scale with their 15 neighbours a channel, values have their own). The pages were reserved.
func (h *head) settle(m *Manager) {
	n := m.settling(h.list[recent].tokens, 0)
	if n == 0 {
		return
	}
	l, dk, dv := m.layout[recent], m.o.Layout.KeyDim, m.o.Layout.ValueDim
	k, v := m.tileK(), m.tileV()
	window, out := &h.list[recent], &h.list[settled]
	pages := n / kvpage.Tile
	for i := range pages {
		p := &window.pages[i]
		for j := range kvpage.Tile {
			kvpage.ReadK(l, p.Data, j, k[j*dk:(j+1)*dk])
			kvpage.ReadV(l, p.Data, j, v[j*dv:(j+1)*dv])
		}
		out.append(m, settled, k, dk, v, dv, p.Pos[:kvpage.Tile])
		m.drop(recent, window.refs[i])
	}
	window.refs = window.refs[:copy(window.refs, window.refs[pages:])]
	window.pages = window.pages[:copy(window.pages, window.pages[pages:])]
	window.tokens -= n
}

// tileK and tileV are scratch for one tile.
func (m *Manager) tileK() []float32 {
	if m.k == nil {
		m.k, m.v = make([]float32, kvpage.Tile*m.o.Layout.KeyDim), make([]float32, kvpage.Tile*m.o.Layout.ValueDim)
	}
	return m.k
}

func (m *Manager) tileV() []float32 { m.tileK(); return m.v }

// requantise is Keep of a quantised cache. Tiles before the first dropped token stay as they are; later settled tokens form
// new tiles, their values moved bit for bit; what does not fill a tile goes back to the front of the window.
func (h *head) requantise(m *Manager, keep []int) error {
	l := m.layout[settled]
	view := attention.View{Layout: l, Pages: h.list[settled].pages, RecentLayout: m.layout[recent], Recent: h.list[recent].pages}
	old := h.list[settled].tokens
	stay := 0 // kept tokens that were settled
	for stay < len(keep) && keep[stay] < old {
		stay++
	}
	first := min(same(keep), stay) / kvpage.Tile * kvpage.Tile
	whole := stay / kvpage.Tile * kvpage.Tile
	if err := h.fitsWindow(m, len(keep)-whole, whole, first); err != nil {
		return err
	}
	late := m.read(&view, keep[whole:], h.pos)
	for i, x := range keep {
		h.pos[i] = h.pos[x]
	}
	h.cutPositions(len(keep))
	if err := h.list[settled].ownFrom(m, settled, first, whole); err != nil {
		return err
	}
	h.retile(m, keep[first:whole], first)
	h.list[settled].resize(m, settled, whole)
	h.list[recent].resize(m, recent, 0)
	if err := h.list[recent].reserve(m, recent, len(late.pos)); err != nil {
		return err
	}
	h.list[recent].append(m, recent, late.k, m.o.Layout.KeyDim, late.v, m.o.Layout.ValueDim, late.pos)
	return nil
}

// retile writes the settled tokens at the given indices, whole tiles of them, to the places from first on.
func (h *head) retile(m *Manager, keep []int, first int) {
	p, l, k := &h.list[settled], m.layout[settled], m.tileK()
	view := attention.View{Layout: l, Pages: p.pages}
	values := make([]byte, 0, kvpage.Tile*l.VRowBytes())
	pos := make([]int32, kvpage.Tile)
	for t := 0; t < len(keep); t += kvpage.Tile {
		values = values[:0]
		for j, x := range keep[t : t+kvpage.Tile] {
			m.bulk.Keys(&view, x, x+1, k[j*l.KeyDim:(j+1)*l.KeyDim])
			values = append(values, l.VRow(p.pages[x/l.Tokens].Data, x%l.Tokens)...)
			pos[j] = p.pages[x/l.Tokens].Pos[x%l.Tokens]
		}
		page, slot := &p.pages[(first+t)/l.Tokens], (first+t)%l.Tokens
		kvpage.PutTileK(l, page.Data, slot/kvpage.Tile, kvpage.Tile, k, l.KeyDim)
		n := l.VRowBytes()
		for j := range kvpage.Tile {
			copy(l.VRow(page.Data, slot+j), values[j*n:(j+1)*n])
		}
		copy(page.Pos[slot:], pos)
	}
}

// fitsWindow checks that a window of late tokens and the copies of shared settled pages from first to whole-1 fit the
// budget.
func (h *head) fitsWindow(m *Manager, late, whole, first int) error {
	w, p, t := &h.list[recent], &h.list[settled], m.layout[settled].Tokens
	more := int64((late+kvpage.Tile-1)/kvpage.Tile) * int64(m.layout[recent].PageBytes())
	for _, r := range w.refs {
		if !m.slabs[recent].Shared(r) {
			more -= int64(m.layout[recent].PageBytes())
		}
	}
	for i := range p.refs {
		shared := m.slabs[settled].Shared(p.refs[i])
		switch {
		case i*t >= whole && !shared:
			more -= int64(m.layout[settled].PageBytes())
		case i*t < whole && (i+1)*t > first && shared:
			more += int64(m.layout[settled].PageBytes())
		}
	}
	if err := m.Room(max(more, 0)); err != nil {
		return fmt.Errorf("kvmanager: dropping tokens of a quantised cache: %w", err)
	}
	return nil
}
