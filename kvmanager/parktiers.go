package kvmanager

import "slices"

// fresh is a group number that no block of a layer of the sequence has, seen or parked.
func (s *Sequence) fresh(layer int) int {
	lb := &s.tiers[layer]
	if !lb.mixed {
		return len(lb.blocks)
	}
	n := int32(-1)
	for _, b := range lb.blocks {
		n = max(n, b.group)
	}
	for key, p := range s.parked {
		for _, b := range p.blocks {
			if key.layer == layer {
				n = max(n, b.group)
			}
		}
	}
	return int(n) + 1
}

// parkBlocks takes blocks a to b-1 of a layer out of the list: nobody reads them, so they leave memory once they are stored.
func (s *Sequence) parkBlocks(layer, a, b int) ([]*block, error) {
	m, lb := s.m, &s.tiers[layer]
	out := slices.Clone(lb.blocks[a:b])
	lb.blocks, lb.mixed = slices.Delete(lb.blocks, a, b), true
	var dirty []*block
	for _, x := range out {
		lb.held = unpin(lb.held, x)
		x.stays = false
		if x.dirty && x.move == nil && x.data != nil {
			dirty = append(dirty, x)
		}
	}
	err := m.store(s.home, dirty)
	m.sweep(out)
	return out, err
}

// placeBlocks puts whole blocks between others, as block number at on; they are seen once the layer is acquired.
func (s *Sequence) placeBlocks(layer, at int, blocks []*block, pos []int32) {
	m, lb, t := s.m, &s.tiers[layer], s.m.o.Layout.Tokens
	lb.blocks, lb.mixed = slices.Insert(lb.blocks, at, blocks...), true
	for g := range m.o.KVHeads {
		h := s.at(layer, g)
		pages := h.list[settled].pages
		for i, b := range blocks {
			v := b.view(m, g, t)
			v.Data = nil
			pages = slices.Insert(pages, at+i, v)
		}
		h.list[settled].pages = pages
		h.list[settled].tokens += len(pos)
		h.pos = slices.Insert(h.pos, at*t, pos...)
	}
}

// insertBlocks is insertPages on tiers.
func (s *Sequence) insertBlocks(layer int, k, v []float32, pos []int32) error {
	m, l := s.m, s.m.o.Layout
	for i := 0; i < len(pos); i += l.Tokens {
		b, err := m.newBlock(layer, s.fresh(layer))
		if err != nil {
			return err
		}
		run := pos[i : i+l.Tokens]
		for g := range m.o.KVHeads {
			one := list{}
			one.pages = append(one.pages, b.view(m, g, 0))
			one.append(m, settled, k[(i*m.o.KVHeads+g)*l.KeyDim:], m.o.KVHeads*l.KeyDim, v[(i*m.o.KVHeads+g)*l.ValueDim:], m.o.KVHeads*l.ValueDim, run)
		}
		h := s.at(layer, 0)
		at, _ := slices.BinarySearch(h.pos, run[0])
		s.placeBlocks(layer, at/l.Tokens, []*block{b}, run)
	}
	return nil
}
