package flash

// block is an erase block. owners[p] is the group whose live data page p holds.
type block struct {
	owners  []*entry
	written int // pages programmed since the last erase
	live    int
	pending int // pages given out whose group is not in the index yet
	open    bool
	erases  int
}

// blocks gives out pages and knows which are live.
type blocks struct {
	geo    Geometry
	all    []block
	free   [][]uint32          // by channel
	frees  int                 // blocks in free
	stream map[uint64]uint32   // sequence and channel → open block
	dead   map[uint32]struct{} // closed or open blocks without any live or pending page, waiting to be erased
}

func newBlocks(g Geometry) *blocks {
	return &blocks{geo: g, all: make([]block, g.blocks()), free: make([][]uint32, g.Channels), stream: map[uint64]uint32{}, dead: map[uint32]struct{}{}}
}

// fill puts every block without a live page on the free lists, lowest number on top; others stay closed. It is called
// once, after the journal was replayed.
func (b *blocks) fill() {
	for id := len(b.all) - 1; id >= 0; id-- {
		if b.all[id].live > 0 {
			b.all[id].written = b.geo.BlockPages // what is left of it is not trusted until it is erased
			continue
		}
		b.release(uint32(id))
	}
}

// release puts an erased block on its free list.
func (b *blocks) release(id uint32) {
	b.all[id].written, b.all[id].open = 0, false
	ch := int(id) % b.geo.Channels
	b.free[ch] = append(b.free[ch], id)
	b.frees++
}

// gcReserve is the number of free blocks that only garbage collection may take.
const gcReserve = 1

// shared is the stream of collected pages, and of every sequence while blocks are scarce.
const shared = 0

func streamKey(seq uint32, channel int) uint64 { return uint64(seq)<<8 | uint64(channel) }

// next gives out a page for a sequence, on the channel if there is one; collecting says that the reserve may be used.
func (b *blocks) next(seq uint32, channel int, collecting bool) (page uint32, ok bool) {
	if id, ok := b.stream[streamKey(seq, channel)]; ok {
		return b.take(id), true
	}
	if seq != shared && b.frees <= 2*b.geo.Channels {
		seq = shared
		if id, ok := b.stream[streamKey(seq, channel)]; ok {
			return b.take(id), true
		}
	}
	if b.frees > gcReserve || collecting && b.frees > 0 {
		id := b.pop(channel)
		b.all[id].open = true
		if b.all[id].owners == nil {
			b.all[id].owners = make([]*entry, b.geo.BlockPages)
		}
		b.stream[streamKey(seq, channel)] = id
		return b.take(id), true
	}
	best, found := uint32(0), false // any open block with room, the lowest
	for _, id := range b.stream {
		if !found || id < best {
			best, found = id, true
		}
	}
	if !found {
		return 0, false
	}
	return b.take(best), true
}

// pop takes a free block of the channel, or of the one that has most.
func (b *blocks) pop(channel int) uint32 {
	if len(b.free[channel]) == 0 {
		for ch := range b.free {
			if len(b.free[ch]) > len(b.free[channel]) {
				channel = ch
			}
		}
	}
	list := b.free[channel]
	id := list[len(list)-1]
	b.free[channel] = list[:len(list)-1]
	b.frees--
	return id
}

// take gives out the next page of an open block; a full block is closed.
func (b *blocks) take(id uint32) uint32 {
	k := &b.all[id]
	page := id*uint32(b.geo.BlockPages) + uint32(k.written)
	k.written++
	k.pending++
	delete(b.dead, id)
	if k.written == b.geo.BlockPages {
		b.close(id)
	}
	return page
}

// close ends an open block's stream.
func (b *blocks) close(id uint32) {
	b.all[id].open = false
	for key, open := range b.stream {
		if open == id {
			delete(b.stream, key)
		}
	}
	b.look(id)
}

// closeSequence closes the open blocks of a sequence.
func (b *blocks) closeSequence(seq uint32) {
	for ch := range b.geo.Channels {
		if id, ok := b.stream[streamKey(seq, ch)]; ok {
			b.close(id)
		}
	}
}

func (b *blocks) of(page uint32) (*block, int) {
	return &b.all[page/uint32(b.geo.BlockPages)], int(page) % b.geo.BlockPages
}

// adopt marks a page as a group's.
func (b *blocks) adopt(page uint32, e *entry, given bool) {
	k, at := b.of(page)
	if k.owners == nil {
		k.owners = make([]*entry, b.geo.BlockPages)
	}
	k.owners[at] = e
	k.live++
	if given {
		k.pending--
	}
}

// abandon gives a page up that was given out and never used.
func (b *blocks) abandon(page uint32) {
	k, _ := b.of(page)
	k.pending--
	b.look(page / uint32(b.geo.BlockPages))
}

// invalidate marks a group's page as garbage.
func (b *blocks) invalidate(page uint32) {
	k, at := b.of(page)
	k.owners[at] = nil
	k.live--
	b.look(page / uint32(b.geo.BlockPages))
}

// look puts a closed block without live pages on the list of the dead.
func (b *blocks) look(id uint32) {
	if k := &b.all[id]; !k.open && k.live == 0 && k.pending == 0 && k.written > 0 {
		b.dead[id] = struct{}{}
	}
}

// victim is the closed block with the fewest live pages of which some are garbage; false where there is none.
func (b *blocks) victim() (id uint32, ok bool) {
	best := b.geo.BlockPages
	for i := range b.all {
		k := &b.all[i]
		if k.written > 0 && !k.open && k.pending == 0 && k.live < best {
			id, best, ok = uint32(i), k.live, true
		}
	}
	return id, ok
}
