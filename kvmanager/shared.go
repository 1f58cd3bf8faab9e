package kvmanager

import (
	"errors"
	"slices"
	"sort"
)

// truncateBlocks is Truncate of a sequence on tiers. The last tokens' block comes back to memory: more will be written there.
func (s *Sequence) truncateBlocks(next int32) error {
	err := s.releaseAll()
	for layer := range s.tiers {
		err = errors.Join(err, s.truncateLayer(layer, next))
	}
	return err
}

func (s *Sequence) truncateLayer(layer int, next int32) error {
	m, t := s.m, s.m.o.Layout.Tokens
	if from, ok := s.cutsSettled(layer, next); ok && m.quantised {
		if err := s.materialise(layer, from/t); err != nil {
			return err
		}
		defer s.touched(layer, from/t)
	}
	for g := range m.o.KVHeads {
		if err := s.cut(layer*m.o.KVHeads+g, next); err != nil {
			return err
		}
	}
	if err := s.trim(layer); err != nil {
		return err
	}
	for _, b := range s.tiers[layer].open {
		if err := m.load(b); err != nil {
			return err
		}
	}
	return s.Release(layer)
}

// cutsSettled is the first settled token of any head that a truncation takes away; ok is false where it takes none.
func (s *Sequence) cutsSettled(layer int, next int32) (first int, ok bool) {
	first = -1
	for g := range s.m.o.KVHeads {
		h := s.at(layer, g)
		n := sort.Search(len(h.pos), func(j int) bool { return h.pos[j] >= next })
		if n < h.list[settled].tokens && (first < 0 || n < first) {
			first = n
		}
	}
	return max(first, 0), first >= 0
}

// shareBlocks gives a fork the sequence's blocks. Both store what they write from now on under numbers of their own, so that
// no two blocks ever have the same key.
func (s *Sequence) shareBlocks(f *Sequence) error {
	for layer := range s.tiers {
		lb := &s.tiers[layer]
		f.tiers[layer].blocks = slices.Clone(lb.blocks)
		for _, b := range lb.blocks {
			b.refs++
		}
		f.show(layer, 0, false)
		f.reopen(layer)
	}
	copy(f.quota, s.quota)
	old := s.home
	s.home = s.m.newHome()
	old.current = false
	return s.m.dropHome(old)
}

// freeBlocks gives every block back.
func (s *Sequence) freeBlocks() {
	m := s.m
	for layer := range s.tiers {
		lb := &s.tiers[layer]
		for _, b := range lb.held {
			b.pins--
		}
		for _, b := range lb.open {
			b.open--
		}
		for _, b := range lb.blocks {
			_ = m.releaseBlock(b) // a write of it that failed concerns nobody any more
		}
		m.sweep(lb.blocks)
	}
	if s.tiers != nil {
		s.home.current = false
		m.note(m.dropHome(s.home))
		i := slices.Index(m.tiered, s)
		m.tiered = slices.Delete(m.tiered, i, i+1)
	}
	s.tiers = nil
}
