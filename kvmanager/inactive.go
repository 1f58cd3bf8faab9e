package kvmanager

import (
	"fmt"
	"math"
	"slices"

	"terrace/attention"
)

// inactiveKey names inactive tokens: a layer and the first of their positions.
type inactiveKey struct {
	layer int
	from  int32
}

// inactivePages is the pages of some tokens of one layer, out of every view.
type inactivePages struct {
	detached
	pos []int32
}

// Deactivate takes the tokens of a layer at positions from to to-1 out of its views; their pages stay as they are
// until Activate puts them back, and count as the sequence's; on tiers they leave memory. They must fill whole pages in every KV
// head. Caches of floats only (ErrPlan).
func (s *Sequence) Deactivate(layer int, from, to int32) error {
	key, t := inactiveKey{layer, from}, s.m.o.Layout.Tokens
	if s.inactive[key] != nil {
		return fmt.Errorf("kvmanager: positions %d to %d of layer %d are inactive already: %w", from, to-1, layer, ErrPlan)
	}
	first, n, pos := make([]int, s.m.heads(layer)), 0, []int32(nil)
	for g := range first {
		lo, hi := s.at(layer, g).between(from, to)
		if g == 0 {
			pos = slices.Clone(s.at(layer, 0).pos[lo:hi])
		}
		if !s.enc.movesTokens() || lo%t != 0 || hi%t != 0 || lo == hi || !slices.Equal(pos, s.at(layer, g).pos[lo:hi]) {
			return fmt.Errorf("kvmanager: positions %d to %d of layer %d head %d are tokens %d to %d, want the same whole pages of %d in every head, in a cache of floats: %w", from, to-1, layer, g, lo, hi-1, t, ErrPlan)
		}
		first[g], n = lo/t, (hi-lo)/t
	}
	d, err := s.store.detach(layer, first, n)
	if d == nil {
		return err
	}
	if s.inactive == nil {
		s.inactive = map[inactiveKey]*inactivePages{}
	}
	s.inactive[key] = &inactivePages{d, pos}
	for g, a := range first {
		h := s.at(layer, g)
		h.main.pages = slices.Delete(h.main.pages, a, a+n)
		h.main.tokens -= n * t
		h.pos = slices.Delete(h.pos, a*t, (a+n)*t)
	}
	return err
}

// Activate puts tokens back to their place by position; from is the first of them, as Deactivate was called with.
func (s *Sequence) Activate(layer int, from int32) error {
	p := s.inactive[inactiveKey{layer, from}]
	if p == nil {
		return fmt.Errorf("kvmanager: position %d of layer %d is not inactive: %w", from, layer, ErrPlan)
	}
	if s.splits(layer, p.pos[0], p.pos[len(p.pos)-1]) {
		return fmt.Errorf("kvmanager: positions from %d on do not fit between the pages of layer %d: %w", from, layer, ErrPlan)
	}
	s.place(layer, p.detached, 0, len(p.pos)/s.m.o.Layout.Tokens, p.pos)
	delete(s.inactive, inactiveKey{layer, from})
	return nil
}

// place puts pages i to j-1 of those that are in no list, with these positions, to their place.
func (s *Sequence) place(layer int, d detached, i, j int, pos []int32) {
	first := make([]int, s.m.heads(layer))
	for g := range first {
		first[g] = firstAtLeast(s.at(layer, g).pos, pos[0]) / s.m.o.Layout.Tokens
	}
	d.attach(i, j, first)
	for g, at := range first {
		h := s.at(layer, g)
		h.main.tokens += len(pos)
		h.pos = slices.Insert(h.pos, at*s.m.o.Layout.Tokens, pos...)
	}
}

// Insert adds tokens of a layer before and between those that are there: k [n, G·dk] (rotated), v [n, G·dv], positions
// ascending and none of them present. Runs that fill whole pages between whole pages cost nothing but their own pages;
// otherwise the later tokens move up. Caches of floats only (ErrPlan); on ErrBudget nothing has changed.
func (s *Sequence) Insert(layer int, k, v []float32, pos []int32) error {
	if s.closed {
		return fmt.Errorf("kvmanager: insert: %w", ErrClosed)
	}
	if s.m.main(layer).ValueInKey {
		v = k
	}
	if !s.enc.movesTokens() {
		return fmt.Errorf("kvmanager: insert into a quantized cache: %w", ErrPlan)
	}
	for g := range s.m.heads(layer) { // all heads have room, or none is touched
		h := s.at(layer, g)
		for _, at := range pos {
			if _, found := slices.BinarySearch(h.pos, at); found {
				return fmt.Errorf("kvmanager: position %d of layer %d head %d is there already: %w", at, layer, g, ErrPlan)
			}
		}
	}
	if s.wholePages(layer, pos) {
		return s.insertPages(layer, k, v, pos)
	}
	return s.insertTokens(layer, k, v, pos)
}

// insertTokens is Insert where later tokens move up.
func (s *Sequence) insertTokens(layer int, k, v []float32, pos []int32) error {
	l, heads, page := s.m.main(layer), s.m.heads(layer), math.MaxInt // first page that changes
	for g := range heads {
		page = min(page, firstAtLeast(s.at(layer, g).pos, pos[0])/l.Tokens)
	}
	if err := s.store.edit(layer, page); err != nil {
		return err
	}
	if err := s.reserve(layer, len(pos)); err != nil {
		return err
	}
	for g := range heads {
		h := s.at(layer, g)
		if at := firstAtLeast(h.pos, pos[0]); at < len(h.pos) {
			if err := s.store.own(layer, g, at, len(h.pos)); err != nil { // invariant 3
				return err
			}
		}
		h.merge(s.m, l, k[g*l.KeyDim:], v[g*l.ValueDim:], heads, pos)
	}
	s.store.appended(layer, page)
	return nil
}

// wholePages reports whether positions are runs that fill pages, and go between pages, in every KV head.
func (s *Sequence) wholePages(layer int, pos []int32) bool {
	t := s.m.o.Layout.Tokens
	if len(pos)%t != 0 {
		return false
	}
	for i := 0; i < len(pos); i += t {
		if s.splits(layer, pos[i], pos[i+t-1]) {
			return false
		}
	}
	return true
}

// splits reports whether tokens of positions from to to would go into a page of some head, or around a token.
func (s *Sequence) splits(layer int, from, to int32) bool {
	for g := range s.m.heads(layer) {
		h := s.at(layer, g)
		at := firstAtLeast(h.pos, from+1)
		if at%s.m.o.Layout.Tokens != 0 || at < len(h.pos) && h.pos[at] <= to {
			return true
		}
	}
	return false
}

// insertPages writes the tokens to pages of their own and puts these between the others.
func (s *Sequence) insertPages(layer int, k, v []float32, pos []int32) error {
	l, heads := s.m.main(layer), s.m.heads(layer)
	n := len(pos) / l.Tokens
	d, err := s.store.fresh(layer, n)
	if err != nil {
		return err
	}
	for i := range n {
		run := i * l.Tokens
		for g := range heads {
			one := list{pages: []attention.Page{d.pages(g)[i]}}
			at := run*heads + g
			one.append(l, k[at*l.KeyDim:], heads*l.KeyDim, v[at*l.ValueDim:], heads*l.ValueDim, pos[run:run+l.Tokens])
			d.pages(g)[i] = one.pages[0]
		}
		s.place(layer, d, i, i+1, pos[run:run+l.Tokens])
	}
	return nil
}

// partsInactive refuses a cut within inactive tokens, which come and go as a whole.
func (s *Sequence) partsInactive(next int32) error {
	for key, p := range s.inactive {
		if last := p.pos[len(p.pos)-1]; key.from < next && last >= next {
			return fmt.Errorf("kvmanager: truncating to position %d, within the inactive tokens %d to %d of layer %d: %w", next, key.from, last, key.layer, ErrPlan)
		}
	}
	return nil
}

// dropInactive gives back the inactive tokens of positions from next on.
func (s *Sequence) dropInactive(next int32) {
	for key, p := range s.inactive {
		if key.from >= next {
			s.m.note(p.free())
			delete(s.inactive, key)
		}
	}
}

// Inactive reports whether the tokens of a layer from a position on are inactive, as Deactivate was called.
func (s *Sequence) Inactive(layer int, from int32) bool {
	return s.inactive[inactiveKey{layer, from}] != nil
}

// InactiveBytes is what the inactive tokens' pages hold in host memory.
func (s *Sequence) InactiveBytes() (n int64) {
	for _, p := range s.inactive {
		n += p.bytes()
	}
	return n
}
