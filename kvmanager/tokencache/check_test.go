package tokencache

import (
	"slices"
	"testing"
)

// check holds a cache that rests against itself and its manager, as bbolt's Check does a file: it is called after every operation.
//
//  1. granules and slots name each other; free slots are nobody's; used and free ones are all slots, in whole chunks.
//  2. no shard has more slots in use than the limit and a chunk, and what is absorbed is complete blocks of the text.
//  3. what is charged is slots with their tables, staging, and the room that views and loose tokens have grown to; the manager has it.
//  4. every staging buffer is free, or a read's that is under way; halves in use are single tokens' reads.
//  5. a layer without a selection pins nothing.
func (c *Cache) check(t testing.TB) {
	t.Helper()
	tables, slots := int64(0), int64(0)
	for layer, first := range c.first {
		if first < 0 {
			continue
		}
		for i := range c.shardsOf(layer) {
			s := &c.shards[first+i]
			s.check(t)
			tables += 4 * int64(len(s.at))
			slots += int64(len(s.chunks)) * s.of.chunkBytes()
			if s.absorbed > c.blocks.Count(layer) {
				t.Errorf("layer %d: %d blocks absorbed of %d", layer, s.absorbed, c.blocks.Count(layer))
			}
		}
		if w := &c.layers[layer]; !w.active && len(w.pinned) > 0 {
			t.Errorf("layer %d pins %d blocks for no selection", layer, len(w.pinned))
		}
	}
	want := slots + tables + int64(len(c.stage.arena)) + c.gather.bytes() + int64(cap(c.out.loose)+len(c.out.data))
	if c.slots.charged != want || c.Bytes() != want || c.Sizes().Fixed != want-slots {
		t.Errorf("%d bytes charged, %d beside slots; held are %d and %d", c.slots.charged, c.Sizes().Fixed, want, want-slots)
	}
	busy := 0
	for layer := range c.layers {
		for _, r := range c.layers[layer].reads {
			busy += len(r.buffers)
		}
	}
	free := slices.Clone(c.stage.free)
	slices.Sort(free)
	if len(slices.Compact(free)) != len(c.stage.free) || len(free)+busy != c.stage.all {
		t.Errorf("%d staging buffers, %d in reads, free are %v", c.stage.all, busy, c.stage.free)
	}
	used := [2]bool{}
	for layer := range c.layers {
		if x := &c.layers[layer].single; x.t != nil {
			used[x.half] = true
		}
	}
	if used != c.gather.used {
		t.Errorf("halves %v are used, reads have %v", c.gather.used, used)
	}
}

// check is rules 1 and 2 of a shard.
func (s *shard) check(t testing.TB) {
	t.Helper()
	used := 0
	for granule, slot := range s.at {
		if slot < 0 {
			continue
		}
		used++
		if int(slot) >= len(s.owner) || s.owner[slot] != int32(granule) {
			t.Fatalf("granule %d has slot %d, which is another's", granule, slot)
		}
	}
	free := slices.Clone(s.free)
	slices.Sort(free)
	if n := len(slices.Compact(free)); n != len(s.free) || used+n != len(s.owner) || len(s.owner) != chunkSlots*len(s.chunks) || len(s.chunks) != len(s.bytes) {
		t.Fatalf("%d slots in %d chunks, %d used, free are %v", len(s.owner), len(s.chunks), used, s.free)
	}
	for _, slot := range s.free {
		if s.owner[slot] >= 0 {
			t.Fatalf("slot %d is free and granule %d's", slot, s.owner[slot])
		}
	}
	if len(s.lastUse) != len(s.owner) || len(s.priority) != len(s.owner) || s.next > len(s.victims) {
		t.Fatalf("%d slots, %d uses, %d priorities, victim %d of %d", len(s.owner), len(s.lastUse), len(s.priority), s.next, len(s.victims))
	}
}
