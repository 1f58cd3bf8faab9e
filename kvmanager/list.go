package kvmanager

import (
	"slices"

	"terrace/attention"
	"terrace/internal/kvpage"
)

// list is tokens in pages of one layout, dense: token i lies in page i/Tokens. It does not own the pages' memory: a layer store
// does, or the window of a quantized cache.
type list struct {
	pages  []attention.Page // the last ones may have room
	tokens int
}

// append writes rows into the reserved room.
func (p *list) append(l *kvpage.Layout, k []float32, kStride int, v []float32, vStride int, pos []int32) {
	p.write(l, p.tokens, len(pos), k, kStride, v, vStride, loneAt(pos))
	p.count(l, pos)
}

// loneAt is the lone token (kvpage) of a group with these positions: a text's first token, which much attention goes to, or any.
func loneAt(pos []int32) int {
	if len(pos) > 0 && pos[0] == 0 {
		return 0
	}
	return kvpage.Farthest
}

// write writes n rows into the room of the tokens from a number on; lone is of the first group.
func (p *list) write(l *kvpage.Layout, first, n int, k []float32, kStride int, v []float32, vStride, lone int) {
	for done := 0; done < n; {
		at := first + done
		slot := at % l.Tokens
		run := min(l.Tokens-slot, n-done)
		attention.AppendFirst(*l, p.pages[at/l.Tokens].Data, slot, run, k[done*kStride:], kStride, v[done*vStride:], vStride, lone)
		done, lone = done+run, kvpage.Farthest
	}
}

// count takes the tokens with these positions into the list.
func (p *list) count(l *kvpage.Layout, pos []int32) {
	for at := p.tokens / l.Tokens; len(pos) > 0; at++ {
		page := &p.pages[at]
		n := copy(page.Pos[page.N:l.Tokens], pos)
		page.N += n
		p.tokens += n
		pos = pos[n:]
	}
}

// editKeys shows fn the keys of each group and writes them back; the list's first token has the number first for fn. Pages are writable.
func (p *list) editKeys(l *kvpage.Layout, first int, fn func(from int, keys []float32)) {
	group := l.K.KeyGroup()
	keys := make([]float32, group*l.KeyDim)
	for i := range p.pages {
		page := &p.pages[i]
		for slot := 0; slot < page.N; slot += group {
			n := min(group, page.N-slot)
			for j := range n {
				kvpage.ReadK(*l, page.Data, slot+j, keys[j*l.KeyDim:(j+1)*l.KeyDim])
			}
			fn(first+i*l.Tokens+slot, keys[:n*l.KeyDim])
			if l.K.Quantised() {
				kvpage.PutGroupK(*l, page.Data, slot/group, n, keys, l.KeyDim, loneAt(page.Pos[slot:]))
				continue
			}
			for j := range n {
				kvpage.PutK(*l, page.Data, slot+j, keys[j*l.KeyDim:(j+1)*l.KeyDim])
			}
		}
	}
}

// renumber gives the tokens the positions from first on. Pages are writable.
func (p *list) renumber(first int32) {
	for i := range p.pages {
		for j := range p.pages[i].N {
			p.pages[i].Pos[j] = first
			first++
		}
	}
}

// cut sets the number of tokens after some at the end went; whoever owns the pages takes those that became empty.
func (p *list) cut(m *Manager, l *kvpage.Layout, n int) {
	for i := n / l.Tokens; i < len(p.pages); i++ {
		if left := max(0, n-i*l.Tokens); left < p.pages[i].N {
			p.pages[i].N, p.pages[i].Version = left, m.stamp()
		}
	}
	p.tokens = n
}

// clone is a copy of the list over the same pages.
func (p *list) clone() list { return list{pages: slices.Clone(p.pages), tokens: p.tokens} }

// head is the tokens of one layer and KV head in the main pages, in the cache's layout, and the positions of all its tokens
// as PositionList shows them: those of a quantized cache's window lie behind.
type head struct {
	main list
	pos  []int32
}

// between is the range of tokens with positions from to to-1.
func (h *head) between(from, to int32) (lo, hi int) {
	lo, _ = slices.BinarySearch(h.pos, from)
	hi, _ = slices.BinarySearch(h.pos, to)
	return lo, hi
}

// cutPositions keeps the first n positions, in a list of its own where most went.
func (h *head) cutPositions(n int) {
	if h.pos = h.pos[:n]; cap(h.pos) > 2*n+64 {
		h.pos = slices.Clone(h.pos)
	}
}

// same is how many of the first indices stay where they are.
func same(keep []int) int {
	n := 0
	for n < len(keep) && keep[n] == n {
		n++
	}
	return n
}

// runOf is how many of the first indices, at most limit, follow one another.
func runOf(keep []int, limit int) int {
	n := 1
	for n < limit && n < len(keep) && keep[n] == keep[0]+n {
		n++
	}
	return n
}

// compact moves the kept tokens of a cache of floats together, bit for bit; the pages from the first that changes on are
// writable.
func (h *head) compact(m *Manager, l *kvpage.Layout, keep []int) {
	p := &h.main
	for to := same(keep); to < len(keep); {
		from := keep[to]
		src, dst := &p.pages[from/l.Tokens], &p.pages[to/l.Tokens]
		n := runOf(keep[to:], kvpage.Tile-max(from%kvpage.Tile, to%kvpage.Tile))
		if !kvpage.MoveRun(*l, dst.Data, to%l.Tokens, src.Data, from%l.Tokens, n) {
			panic("kvmanager: tokens of a quantized page were moved alone") // those go through requantize
		}
		copy(dst.Pos[to%l.Tokens:][:n], src.Pos[from%l.Tokens:][:n])
		copy(h.pos[to:to+n], h.pos[from:from+n])
		to += n
	}
	h.cutPositions(len(keep))
	p.cut(m, l, len(keep))
}

// merge moves the tokens behind new ones up, from the last on, into room that was reserved; the pages from the first that
// changes on are writable. kvHeads is the stride of k and v in heads.
func (h *head) merge(m *Manager, l *kvpage.Layout, k, v []float32, kvHeads int, pos []int32) {
	p := &h.main
	old, n := len(h.pos), len(h.pos)+len(pos)
	h.pos = slices.Grow(h.pos, len(pos))[:n]
	for i := old / l.Tokens; i < len(p.pages); i++ {
		p.pages[i].N = min(l.Tokens, n-i*l.Tokens)
	}
	p.tokens = n
	first := n
	for to, from, in := n-1, old-1, len(pos)-1; in >= 0; to-- {
		page, slot := &p.pages[to/l.Tokens], to%l.Tokens
		if from >= 0 && h.pos[from] > pos[in] {
			if !kvpage.Move(*l, page.Data, slot, p.pages[from/l.Tokens].Data, from%l.Tokens) {
				panic("kvmanager: a token of a quantized page was moved alone") // refused by Insert
			}
			h.pos[to] = h.pos[from]
			from--
		} else {
			attention.Append(*l, page.Data, slot, 1, k[in*kvHeads*l.KeyDim:], l.KeyDim, v[in*kvHeads*l.ValueDim:], l.ValueDim)
			h.pos[to] = pos[in]
			in--
		}
		page.Pos[slot], first = h.pos[to], to
	}
	for i := first / l.Tokens; i < len(p.pages); i++ {
		p.pages[i].Version = m.stamp()
	}
}
