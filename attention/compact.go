package attention

import (
	"slices"

	"terrace/internal/kvpage"
)

// compacted is the scratch of the blockwise phases for chosen tokens: they are copied to views of their own first, because
// a block of keys serves many rows there and copying is a small part (invariant 4). Quantised keys, whose scales belong to
// tiles, are read as float32.
type compacted struct {
	seqs  []Seq
	views []View
	data  []byte
	pos   []int32
	pages []Page
	key   []float32
}

// compactChosen replaces the sequences that have a selection by copies whose views hold the chosen tokens alone. Select
// stays: it numbers the tokens for ColumnSums.
func (w *workspace) compactChosen() {
	if !slices.ContainsFunc(w.seqs, func(s Seq) bool { return s.Select != nil }) {
		return
	}
	c := &w.compacted
	c.seqs, c.views = append(c.seqs[:0], w.seqs...), c.views[:0]
	bytes, slots := 0, 0
	for i := range c.seqs {
		for g, chosen := range c.seqs[i].Select {
			v := &c.seqs[i].Views[g]
			for _, l := range [2]kvpage.Layout{compactLayout(v.Layout), compactLayout(v.RecentLayout)} {
				n := (len(chosen) + tileTokens - 1) / tileTokens
				bytes, slots = bytes+n*l.PageBytes(), slots+n*tileTokens
			}
		}
		c.views = append(c.views, c.seqs[i].Views...)
	}
	c.data, c.pos, c.pages = grow(c.data, bytes)[:0], grow(c.pos, slots)[:0], grow(c.pages, slots/tileTokens)[:0]
	at := 0
	for i := range c.seqs {
		s := &c.seqs[i]
		views := c.views[at : at+len(s.Views)]
		at += len(s.Views)
		if s.Select == nil {
			continue
		}
		for g, chosen := range s.Select {
			if chosen != nil {
				c.compact(&views[g], chosen, w.p.seen(s.Pos))
			}
		}
		s.Views = views
	}
	w.seqs = c.seqs
}

// compactLayout is that of the copies.
func compactLayout(l kvpage.Layout) kvpage.Layout {
	l.Tokens, l.TokenMajor = tileTokens, l.ValueInKey // values that are keys lie token by token
	if l.K.Quantised() {
		l.K = kvpage.F32
	}
	return l
}

// compact replaces a view by one of the chosen tokens. Those that no query sees have their place and are not read: their pages may not
// be in memory.
func (c *compacted) compact(v *View, chosen []int32, seen span) {
	out := View{Layout: compactLayout(v.Layout), RecentLayout: compactLayout(v.RecentLayout)}
	first := int32(0)
	chosen, first, out.Pages = c.take(out.Layout, v.Layout, v.Pages, chosen, first, seen)
	_, _, out.Recent = c.take(out.RecentLayout, v.RecentLayout, v.Recent, chosen, first, seen)
	*v = out
}

// take copies the chosen tokens of some pages, whose first token is number first of the view; it returns what is left of
// the list, the number after the last token, and the copies.
func (c *compacted) take(l, from kvpage.Layout, pages []Page, chosen []int32, first int32, seen span) ([]int32, int32, []Page) {
	at := len(c.pages)
	for i := range pages {
		p := &pages[i]
		for len(chosen) > 0 && chosen[0] < first+int32(p.N) {
			slot := int(chosen[0] - first)
			chosen = chosen[1:]
			if len(c.pages) == at || c.pages[len(c.pages)-1].N == tileTokens {
				c.addPage(l.PageBytes())
			}
			to := &c.pages[len(c.pages)-1]
			if pos := p.Pos[slot]; pos < seen.low || pos > seen.high {
				c.leave(l, to)
			} else {
				c.move(l, to, from, p, slot)
			}
			to.Pos = append(to.Pos, p.Pos[slot])
			to.N++
		}
		first += int32(p.N)
	}
	return chosen, first, c.pages[at:len(c.pages):len(c.pages)]
}

func (c *compacted) addPage(size int) {
	n, m := len(c.data), len(c.pos)
	c.data, c.pos = c.data[:n+size], c.pos[:m+tileTokens]
	c.pages = append(c.pages, Page{Data: c.data[n : n+size], Pos: c.pos[m : m : m+tileTokens]})
}

// move copies a token to the next slot of a page.
func (c *compacted) move(l kvpage.Layout, to *Page, from kvpage.Layout, p *Page, slot int) {
	if l.K == from.K {
		l.MoveFrom(to.Data, to.N, from, p.Data, slot)
		return
	}
	c.key = grow(c.key, l.KeyDim)
	kvpage.ReadK(from, p.Data, slot, c.key)
	kvpage.PutK(l, to.Data, to.N, c.key)
	copy(l.VRow(to.Data, to.N), from.VRow(p.Data, slot))
}

// leave makes the next slot of a page zeros.
func (c *compacted) leave(l kvpage.Layout, to *Page) {
	c.key = grow(c.key, l.KeyDim)
	clear(c.key)
	kvpage.PutK(l, to.Data, to.N, c.key)
	if !l.ValueInKey {
		clear(l.VRow(to.Data, to.N))
	}
}

// forget drops the references to pages.
func (c *compacted) forget() {
	clear(c.seqs)
	clear(c.views)
}
