package tokencache

import "slices"

// Follow takes note that blocks of a layer came and went in the middle of its tokens, whose positions were was before: tokens that
// stay keep their slots under their new index, slots of those that left are free, and blocks that came and are in memory are taken
// in, as newly complete ones are. Of caches of single tokens that all heads share.
func (c *Cache) Follow(layer int, was []int32) error {
	if !c.Serves(layer) {
		return nil
	}
	s, pos := &c.shardsOf(layer)[0], c.blocks.PositionList(layer, 0)
	if slices.Equal(pos, was) {
		return nil
	}
	blocks, t := c.blocks.Count(layer), c.tokens
	if err := s.cover(blocks * t); err != nil {
		return err
	}
	s.rename(pos, was)
	last := noPosition // the first token behind what was taken in
	if i := s.absorbed * t; i < len(was) {
		last = was[i]
	}
	for s.absorbed = 0; s.absorbed < blocks; s.absorbed++ {
		first := s.absorbed * t
		if first >= len(pos) || pos[first] >= last || !c.blocks.Complete(layer, s.absorbed) {
			break
		}
		if _, old := slices.BinarySearch(was, pos[first]); old {
			continue
		}
		data := c.blocks.Resident(layer, s.absorbed)
		for place := 0; data != nil && place < t; place++ {
			if index := int32(first + place); c.keeps(layer, index) {
				if slot := s.place(index, s.freshPriority()); slot >= 0 {
					c.of[layer].copyGranule(s.slot(slot), data, place)
				}
			}
		}
	}
	return nil
}

// noPosition is beyond every position.
const noPosition = int32(1<<31 - 1)

// rename gives slots the new indices of their tokens, whose positions were was and are pos; those that have none are free.
func (s *shard) rename(pos, was []int32) {
	s.forgetVictims()
	index, at := make([]int32, len(was)), 0 // of what was there before, now
	for i, p := range was {
		for at < len(pos) && pos[at] < p {
			at++
		}
		if index[i] = -1; at < len(pos) && pos[at] == p {
			index[i] = int32(at)
		}
	}
	for i := range s.at {
		s.at[i] = -1
	}
	for slot, old := range s.owner {
		if old < 0 {
			continue
		}
		if s.owner[slot] = index[old]; index[old] < 0 {
			s.free = append(s.free, int32(slot))
			continue
		}
		s.at[index[old]] = int32(slot)
	}
}
