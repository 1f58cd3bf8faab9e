package kvmanager

import (
	"errors"
	"fmt"
	"slices"
	"sort"
)

// layerBlocks are the blocks of one layer of a sequence on tiers, in token order, and what a pass holds of them.
type layerBlocks struct {
	blocks []*block
	open   []*block // this sequence may write to them
	held   []*block // pinned for the pass, or for the next
	from   int      // first block that the pass holds
	mixed  bool     // blocks came and went in the middle: their numbers are not their places
	early  bool     // held for the next pass or layer only: given up where room is short
}

// settledMore is how many tokens a head's settled pages get when n more come.
func (s *Sequence) settledMore(h *head, n int) int {
	if s.m.quantised {
		return s.m.settling(h.list[recent].tokens, n)
	}
	return n
}

// pagesFor is the number of settled pages that a head needs for n more tokens.
func (s *Sequence) pagesFor(h *head, n int) int {
	t := s.m.o.Layout.Tokens
	return (h.list[settled].tokens + s.settledMore(h, n) + t - 1) / t
}

// reserveBlocks is reserve of a sequence on tiers; where it fails, reserve cleans up.
func (s *Sequence) reserveBlocks(layer, n int) error {
	m, lb := s.m, &s.tiers[layer]
	most := 0
	var own []*block // in memory until all are there: making room for one must not take another
	keep := func(b *block) {
		b.pins++
		own = append(own, b)
	}
	defer func() {
		for _, b := range own {
			b.pins--
		}
	}()
	for i := range m.o.KVHeads {
		h := s.at(layer, i)
		if m.quantised {
			if err := h.list[recent].reserve(m, recent, n); err != nil {
				return err
			}
		}
		most = max(most, s.pagesFor(h, n))
		p := &h.list[settled]
		if last := len(p.pages) - 1; last >= 0 && p.pages[last].N < m.o.Layout.Tokens && s.settledMore(h, n) > 0 {
			if err := s.ownBlock(layer, last); err != nil {
				return err
			}
			keep(lb.blocks[last])
		}
	}
	for len(lb.blocks) < most {
		b, err := m.newBlock(layer, s.fresh(layer))
		if err != nil {
			return err
		}
		lb.blocks = append(lb.blocks, b)
		keep(b)
	}
	for i := range m.o.KVHeads {
		h := s.at(layer, i)
		for p, want := &h.list[settled], s.pagesFor(h, n); len(p.pages) < want; {
			at := len(p.pages) // another head's tokens may have filled the block already
			if err := s.ownBlock(layer, at); err != nil {
				return err
			}
			keep(lb.blocks[at])
			p.pages = append(p.pages, lb.blocks[at].view(m, i, 0))
		}
	}
	s.reopen(layer)
	return nil
}

// load brings a block into memory.
func (m *Manager) load(b *block) error {
	if b.data == nil {
		b.pins++
		err := m.occupy(b)
		b.pins--
		if err != nil {
			return err
		}
		m.fetch(true, []*block{b})
	}
	if b.move != nil {
		return m.await(b.move)
	}
	return nil
}

// ownBlock makes block i of a layer writable: in memory, not shared, not under way (invariant 3).
func (s *Sequence) ownBlock(layer, i int) error {
	m, lb := s.m, &s.tiers[layer]
	old := lb.blocks[i]
	if err := m.load(old); err != nil {
		return err
	}
	if old.refs == 1 {
		return nil
	}
	old.pins++
	b, err := m.newBlock(layer, int(old.group))
	old.pins--
	if err != nil {
		return err
	}
	copy(b.data, old.data)
	copy(b.pos, old.pos)
	lb.blocks[i] = b
	for k, x := range lb.held {
		if x == old {
			lb.held[k] = b
			old.pins--
			b.pins++
		}
	}
	for k, x := range lb.open {
		if x == old {
			lb.open[k] = b
			old.open--
			b.open++
		}
	}
	for g := range m.o.KVHeads {
		if p := s.at(layer, g).list[settled].pages; i < len(p) {
			p[i] = b.view(m, g, p[i].N)
		}
	}
	return m.releaseBlock(old)
}

// reopen notes which blocks of a layer have room for this sequence's next tokens: they stay in memory.
func (s *Sequence) reopen(layer int) {
	m, lb, t := s.m, &s.tiers[layer], s.m.o.Layout.Tokens
	for _, b := range lb.open {
		b.open--
	}
	clear(lb.open)
	lb.open = lb.open[:0]
	for g := range m.o.KVHeads {
		p := s.at(layer, g).list[settled].pages
		for i := len(p) - 1; i >= 0 && p[i].N < t; i-- {
			lb.blocks[i].open++
			lb.open = append(lb.open, lb.blocks[i])
		}
	}
}

// withRoom is the number of blocks that the sequence may write to; open names one once for every head that it has room of.
func (lb *layerBlocks) withRoom() int {
	n := 0
	for i, b := range lb.open {
		if !slices.Contains(lb.open[:i], b) {
			n++
		}
	}
	return n
}

// trim gives back the blocks that no head reaches any more.
func (s *Sequence) trim(layer int) error {
	lb, most := &s.tiers[layer], 0
	for g := range s.m.o.KVHeads {
		most = max(most, len(s.at(layer, g).list[settled].pages))
	}
	s.reopen(layer)
	var err error
	for i := most; i < len(lb.blocks); i++ {
		b := lb.blocks[i]
		lb.held = unpin(lb.held, b)
		err = errors.Join(err, s.m.releaseBlock(b))
		lb.blocks[i] = nil
	}
	lb.blocks = lb.blocks[:most]
	return err
}

func unpin(held []*block, b *block) []*block {
	for i, x := range held {
		if x == b {
			b.pins--
			held[i] = held[len(held)-1]
			return held[:len(held)-1]
		}
	}
	return held
}

// touched marks a layer's blocks from one on as newer than what is stored.
func (s *Sequence) touched(layer, from int) {
	for _, b := range s.tiers[layer].blocks[from:] {
		b.dirty = true
	}
}

// Prefetch begins to bring what the next pass reads of a layer into memory, as far as there is room: the tokens from
// position low on.
func (s *Sequence) Prefetch(layer int, low int32) {
	if s.m.lower == nil || s.closed {
		return
	}
	lb := &s.tiers[layer]
	lb.from = s.firstBlock(layer, low)
	lb.early = len(lb.held) == 0 || lb.early
	_ = s.hold(layer, false)
}

// firstBlock is the block with the first token not before a position.
func (s *Sequence) firstBlock(layer int, low int32) int {
	if low <= 0 {
		return 0
	}
	first := len(s.tiers[layer].blocks)
	for g := range s.m.o.KVHeads {
		h := s.at(layer, g)
		i := sort.Search(len(h.pos), func(j int) bool { return h.pos[j] >= low })
		first = min(first, i/s.m.o.Layout.Tokens)
	}
	return first
}

// hold pins the blocks of a layer from lb.from on and begins to read those that are not in memory. Without must it stops
// where there is no free frame.
func (s *Sequence) hold(layer int, must bool) error {
	m, lb := s.m, &s.tiers[layer]
	pinned := make(map[*block]bool, len(lb.held))
	for _, b := range lb.held {
		pinned[b] = true
	}
	var missing []*block
	defer func() { m.fetch(must, missing) }()
	for _, b := range lb.blocks[lb.from:] {
		if b.data == nil { // also where an earlier read of it failed
			if !must && m.Room(m.size[settled]) != nil && !m.reclaimIdle() {
				return nil
			}
			if err := m.occupy(b); err != nil {
				return err
			}
			missing = append(missing, b)
			m.fetched += int64(len(b.pos))
		}
		if !pinned[b] {
			m.asked += int64(len(b.pos))
			b.pins++
			lb.held = append(lb.held, b)
		}
	}
	return nil
}

// Acquire brings a layer's tokens from position low on into memory, where they stay until Release. What is newer than the
// lower tier and is not to stay begins to be written.
func (s *Sequence) Acquire(layer int, low int32) error {
	if s.m.lower == nil {
		return nil
	}
	if err := s.gather(layer, low); err != nil {
		return err
	}
	return s.writeThrough(layer)
}

// gather holds a layer's blocks and waits for those that are read.
func (s *Sequence) gather(layer int, low int32) error {
	m := s.m
	if s.closed {
		return fmt.Errorf("kvmanager: acquire: %w", ErrClosed)
	}
	lb := &s.tiers[layer]
	lb.from, lb.early = s.firstBlock(layer, low), false
	if err := s.hold(layer, true); err != nil {
		return err
	}
	for _, b := range lb.blocks[lb.from:] {
		if b.move != nil && !b.move.write {
			if err := m.await(b.move); err != nil {
				return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
			}
		}
	}
	s.show(layer, lb.from, true)
	return nil
}

// show points the pages of a layer at their bytes, or at nothing where a block may leave memory.
func (s *Sequence) show(layer, from int, visible bool) {
	lb := &s.tiers[layer]
	for g := range s.m.o.KVHeads {
		p := s.at(layer, g).list[settled].pages
		for i := from; i < len(p); i++ {
			if visible || lb.blocks[i].open > 0 {
				p[i].Data = lb.blocks[i].page(s.m, g)
			} else {
				p[i].Data = nil
			}
		}
	}
}

// writeThrough begins to write what is complete and not to stay in memory.
func (s *Sequence) writeThrough(layer int) error {
	lb := &s.tiers[layer]
	var out []*block
	for i, b := range lb.blocks {
		b.stays = i >= lb.from && i < lb.from+s.quota[layer]
		if b.dirty && b.open == 0 && !b.stays && b.move == nil && b.data != nil {
			out = append(out, b)
		}
	}
	return s.m.store(s.home, out)
}

// Release lets go of a layer that a pass is done with; what is not to stay leaves memory once it is stored.
func (s *Sequence) Release(layer int) error {
	m := s.m
	if m.lower == nil || s.closed {
		return nil
	}
	lb := &s.tiers[layer]
	for _, b := range lb.held {
		b.pins--
		if b.move != nil && !b.move.write && b.move.t.Done() {
			_ = m.await(b.move) // fetched ahead and not wanted after all: where it failed it is read again when it is
		}
	}
	clear(lb.held)
	lb.held = lb.held[:0]
	s.show(layer, 0, false)
	if err := s.writeThrough(layer); err != nil {
		return err
	}
	m.sweep(lb.blocks)
	m.cursor = layer
	return nil
}

// releaseAll lets go of every layer, where a pass was given up.
func (s *Sequence) releaseAll() error {
	var err error
	for layer := range s.tiers {
		err = errors.Join(err, s.Release(layer))
	}
	return err
}

// materialise brings all of a layer into memory, unshared from a block on, so that tokens can be moved about in it.
func (s *Sequence) materialise(layer, from int) error {
	if err := s.gather(layer, 0); err != nil {
		return err
	}
	for i := from; i < len(s.tiers[layer].blocks); i++ {
		if err := s.ownBlock(layer, i); err != nil {
			return err
		}
	}
	s.show(layer, 0, true)
	return nil
}
