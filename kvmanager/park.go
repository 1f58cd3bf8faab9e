package kvmanager

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"terrace/attention"
	"terrace/internal/kvpage"
)

// parkKey names parked tokens: a layer and the first of their positions.
type parkKey struct {
	layer int
	from  int32
}

// parked is the pages of some tokens of one layer, out of every view; one list a KV head.
type parked struct {
	lists  []list
	blocks []*block // on tiers, instead
	pos    []int32
}

// Park takes the tokens of a layer at positions from to to-1 out of its views; their pages stay as they are until Unpark puts
// them back, and count as the sequence's. They must fill whole pages in every KV head. Caches of floats only (ErrPlan).
func (s *Sequence) Park(layer int, from, to int32) error {
	key := parkKey{layer, from}
	if s.parked[key] != nil {
		return fmt.Errorf("kvmanager: positions %d to %d of layer %d are parked already: %w", from, to-1, layer, ErrPlan)
	}
	p := &parked{}
	for g := range s.m.o.KVHeads {
		lo, hi := s.at(layer, g).between(from, to)
		if t := s.m.o.Layout.Tokens; s.m.quantised || lo%t != 0 || hi%t != 0 || lo == hi {
			return fmt.Errorf("kvmanager: positions %d to %d of layer %d head %d are tokens %d to %d, want whole pages of %d in a cache of floats: %w", from, to-1, layer, g, lo, hi-1, t, ErrPlan)
		}
	}
	if s.parked == nil {
		s.parked = map[parkKey]*parked{}
	}
	s.parked[key] = p
	var err error
	for g := range s.m.o.KVHeads {
		h := s.at(layer, g)
		lo, hi := h.between(from, to)
		a, b := lo/s.m.o.Layout.Tokens, hi/s.m.o.Layout.Tokens
		out := &h.list[settled]
		if g == 0 {
			p.pos = slices.Clone(h.pos[lo:hi])
			if s.tiers != nil {
				p.blocks, err = s.parkBlocks(layer, a, b)
			}
		}
		if s.tiers == nil {
			p.lists = append(p.lists, list{refs: slices.Clone(out.refs[a:b]), pages: slices.Clone(out.pages[a:b]), tokens: hi - lo})
			out.refs = slices.Delete(out.refs, a, b)
		}
		out.pages = slices.Delete(out.pages, a, b)
		out.tokens -= hi - lo
		h.pos = slices.Delete(h.pos, lo, hi)
	}
	return err
}

// between is the range of tokens with positions from to to-1.
func (h *head) between(from, to int32) (lo, hi int) {
	lo, _ = slices.BinarySearch(h.pos, from)
	hi, _ = slices.BinarySearch(h.pos, to)
	return lo, hi
}

// Unpark puts tokens back to their place by position; from is the first of them, as Park was called with.
func (s *Sequence) Unpark(layer int, from int32) error {
	p := s.parked[parkKey{layer, from}]
	if p == nil {
		return fmt.Errorf("kvmanager: position %d of layer %d is not parked: %w", from, layer, ErrPlan)
	}
	if s.tiers != nil {
		if !s.wholePages(layer, p.pos) {
			return fmt.Errorf("kvmanager: positions from %d on do not fit between the pages of layer %d: %w", from, layer, ErrPlan)
		}
		at, _ := slices.BinarySearch(s.at(layer, 0).pos, from)
		s.placeBlocks(layer, at/s.m.o.Layout.Tokens, p.blocks, p.pos)
	}
	for g := range p.lists {
		if err := s.at(layer, g).splice(s.m, &p.lists[g], p.pos); err != nil {
			return err
		}
	}
	delete(s.parked, parkKey{layer, from})
	return nil
}

// splice puts whole pages between others.
func (h *head) splice(m *Manager, in *list, pos []int32) error {
	t := m.o.Layout.Tokens
	at := sort.Search(len(h.pos), func(i int) bool { return h.pos[i] > pos[0] })
	if at%t != 0 || len(pos)%t != 0 || at < len(h.pos) && h.pos[at] <= pos[len(pos)-1] {
		return fmt.Errorf("kvmanager: %d tokens from position %d on do not fit before token %d, want whole pages of %d: %w", len(pos), pos[0], at, t, ErrPlan)
	}
	out := &h.list[settled]
	out.refs, out.pages = slices.Insert(out.refs, at/t, in.refs...), slices.Insert(out.pages, at/t, in.pages...)
	out.tokens += len(pos)
	h.pos = slices.Insert(h.pos, at, pos...)
	return nil
}

// Insert adds tokens of a layer before and between those that are there: k [n, G·dk] (rotated), v [n, G·dv], positions
// ascending and none of them present. Runs that fill whole pages between whole pages cost nothing but their own pages;
// otherwise the later tokens move up. Caches of floats only (ErrPlan); on ErrBudget nothing has changed.
func (s *Sequence) Insert(layer int, k, v []float32, pos []int32) error {
	if s.closed {
		return fmt.Errorf("kvmanager: insert: %w", ErrClosed)
	}
	if s.m.quantised {
		return fmt.Errorf("kvmanager: insert into a quantised cache: %w", ErrPlan)
	}
	for g := range s.m.o.KVHeads { // all heads have room, or none is touched
		h := s.at(layer, g)
		for _, at := range pos {
			if _, found := slices.BinarySearch(h.pos, at); found {
				return fmt.Errorf("kvmanager: position %d of layer %d head %d is there already: %w", at, layer, g, ErrPlan)
			}
		}
	}
	switch {
	case !s.wholePages(layer, pos):
		return s.insertTokens(layer, k, v, pos)
	case s.tiers != nil:
		return s.insertBlocks(layer, k, v, pos)
	}
	return s.insertPages(layer, k, v, pos)
}

// insertTokens is Insert where later tokens move up.
func (s *Sequence) insertTokens(layer int, k, v []float32, pos []int32) error {
	l, page := &s.m.o.Layout, math.MaxInt // first page that changes
	for g := range s.m.o.KVHeads {
		at, _ := slices.BinarySearch(s.at(layer, g).pos, pos[0])
		page = min(page, at/l.Tokens)
	}
	if s.tiers != nil {
		if err := s.materialise(layer, page); err != nil {
			return err
		}
	}
	if err := s.reserve(layer, len(pos)); err != nil {
		return err
	}
	for g := range s.m.o.KVHeads {
		h := s.at(layer, g)
		if at, _ := slices.BinarySearch(h.pos, pos[0]); at < len(h.pos) {
			if err := h.list[settled].ownFrom(s.m, settled, at, len(h.pos)); err != nil { // invariant 3
				return err
			}
		}
		h.merge(s.m, k[g*l.KeyDim:], v[g*l.ValueDim:], pos)
	}
	if s.tiers != nil {
		s.touched(layer, page)
		s.reopen(layer)
	}
	return nil
}

// wholePages reports whether positions are runs that fill pages, and go between pages, in every KV head.
func (s *Sequence) wholePages(layer int, pos []int32) bool {
	t := s.m.o.Layout.Tokens
	if len(pos)%t != 0 {
		return false
	}
	for g := range s.m.o.KVHeads {
		h := s.at(layer, g)
		for i := 0; i < len(pos); i += t {
			at := sort.Search(len(h.pos), func(j int) bool { return h.pos[j] > pos[i] })
			if at%t != 0 || at < len(h.pos) && h.pos[at] <= pos[i+t-1] {
				return false
			}
		}
	}
	return true
}

// insertPages writes the tokens to pages of their own and puts these between the others.
func (s *Sequence) insertPages(layer int, k, v []float32, pos []int32) error {
	l, heads := s.m.o.Layout, s.m.o.KVHeads
	fresh := make([]list, heads)
	for g := range fresh {
		if err := fresh[g].reserve(s.m, settled, len(pos)); err != nil {
			for i := range fresh {
				fresh[i].unreserve(s.m, settled)
			}
			return err
		}
	}
	for g := range fresh {
		f := &fresh[g]
		f.append(s.m, settled, k[g*l.KeyDim:], heads*l.KeyDim, v[g*l.ValueDim:], heads*l.ValueDim, pos)
		for i := range f.pages {
			one := list{refs: f.refs[i : i+1], pages: f.pages[i : i+1]}
			if err := s.at(layer, g).splice(s.m, &one, pos[i*l.Tokens:(i+1)*l.Tokens]); err != nil {
				return err
			}
		}
	}
	return nil
}

// merge moves the tokens behind the new ones up, from the last on, into room that was reserved.
func (h *head) merge(m *Manager, k, v []float32, pos []int32) {
	l, g, p := m.layout[settled], m.o.KVHeads, &h.list[settled]
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
			if !kvpage.Move(l, page.Data, slot, p.pages[from/l.Tokens].Data, from%l.Tokens) {
				panic("kvmanager: a token of a quantised page was moved alone") // refused by Insert
			}
			h.pos[to] = h.pos[from]
			from--
		} else {
			attention.Append(l, page.Data, slot, 1, k[in*g*l.KeyDim:], l.KeyDim, v[in*g*l.ValueDim:], l.ValueDim)
			h.pos[to] = pos[in]
			in--
		}
		page.Pos[slot], first = h.pos[to], to
	}
	for i := first / l.Tokens; i < len(p.pages); i++ {
		p.pages[i].Version = m.stamp()
	}
}

// dropParked gives back the parked tokens of positions from next on.
func (s *Sequence) dropParked(next int32) {
	for key, p := range s.parked {
		if key.from < next {
			continue
		}
		for g := range p.lists {
			for _, r := range p.lists[g].refs {
				s.m.drop(settled, r)
			}
		}
		for _, b := range p.blocks {
			s.m.note(s.m.releaseBlock(b))
		}
		delete(s.parked, key)
	}
}

// Parked reports whether the tokens of a layer from a position on are parked, as Park was called.
func (s *Sequence) Parked(layer int, from int32) bool { return s.parked[parkKey{layer, from}] != nil }

// ParkedBytes is what the parked tokens' pages hold in host memory.
func (s *Sequence) ParkedBytes() (n int64) {
	for _, p := range s.parked {
		for _, b := range p.blocks {
			if b.data != nil {
				n += s.m.size[settled]
			}
		}
		for g := range p.lists {
			n += int64(len(p.lists[g].refs)) * int64(s.m.layout[settled].PageBytes())
		}
	}
	return n
}
