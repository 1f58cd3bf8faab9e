package kvmanager

import (
	"fmt"
	"math"
	"slices"

	"terrace/attention"
)

// place puts pages i to j-1 of those that are in no list, with these positions, to their place.
func (s *Sequence) place(layer int, d detached, i, j int, pos []int32) {
	first := make([]int, s.m.heads(layer))
	for g := range first {
		first[g] = firstAtLeast(s.lists.at(layer, g).pos, pos[0]) / s.m.o.Layout.Tokens
	}
	d.attach(i, j, first)
	for g, at := range first {
		h := s.lists.at(layer, g)
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
		h := s.lists.at(layer, g)
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
		page = min(page, firstAtLeast(s.lists.at(layer, g).pos, pos[0])/l.Tokens)
	}
	if err := s.store.edit(layer, page); err != nil {
		return err
	}
	if err := s.reserve(layer, len(pos)); err != nil {
		return err
	}
	for g := range heads {
		h := s.lists.at(layer, g)
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
		h := s.lists.at(layer, g)
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
