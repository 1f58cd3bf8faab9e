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
	free   [][]uint32          // by lane: channel, then die, then plane (block number mod lanes)
	frees  int                 // blocks in free
	stream map[uint64]*stream  // sequence and channel → what it writes to there
	dead   map[uint32]struct{} // closed or open blocks without any live or pending page, waiting to be erased
}

// stream is a sequence's open blocks on a channel, at most one a lane (a plane of a die): its pages go to them in turn, so
// that dies sense and program side by side.
type stream struct {
	open []uint32 // by lane of the channel; none where it has no block
	turn int
	gone int // turns since the last round ended
	n    int // open blocks
	most int // that were open at once
}

const none = ^uint32(0)

func newBlocks(g Geometry) *blocks {
	return &blocks{geo: g, all: make([]block, g.blocks()), free: make([][]uint32, g.lanes()), stream: map[uint64]*stream{}, dead: map[uint32]struct{}{}}
}

// lanes is how many blocks can be written side by side: one a plane.
func (g Geometry) lanes() int { return g.Channels * g.Dies * g.Planes }

// fill puts every block without a live page on the free lists; others stay closed. It is called once, after the journal was
// replayed.
func (b *blocks) fill() {
	for id := range b.all {
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
	lane := int(id) % len(b.free)
	b.free[lane] = append(b.free[lane], id)
	b.frees++
}

// gcReserve is the number of free blocks that only garbage collection may take.
const gcReserve = 1

// shared is the stream of collected pages, and of every sequence while blocks are scarce.
const shared = 0

func streamKey(seq uint32, channel int) uint64 { return uint64(seq)<<8 | uint64(channel) }

// next gives out a page for a sequence, on the channel if there is one; collecting says that the reserve may be used.
func (b *blocks) next(seq uint32, channel int, collecting bool) (page uint32, ok bool) {
	s := b.stream[streamKey(seq, channel)]
	if seq != shared && b.frees <= 2*b.geo.Channels && (s == nil || s.n == 0) {
		seq = shared
		s = b.stream[streamKey(seq, channel)]
	}
	if s != nil && s.n > 0 && !b.wider(s) {
		return b.take(s.pick()), true
	}
	if b.frees > gcReserve || collecting && b.frees > 0 {
		if s == nil {
			s = b.newStream(seq, channel)
		}
		return b.take(b.pop(s, channel)), true
	}
	if s != nil && s.n > 0 {
		return b.take(s.pick()), true
	}
	return b.anyOpen()
}

// wider says that the stream's next page should go to a lane where it has no block: while most blocks are free a sequence is
// spread over all dies of its channels; later it keeps the width that it has.
func (b *blocks) wider(s *stream) bool {
	return s.open[s.turn] == none && (2*b.frees > len(b.all) || s.n < s.most && b.frees > 2*b.geo.Channels)
}

// anyOpen is a page of any open block with room, the lowest.
func (b *blocks) anyOpen() (page uint32, ok bool) {
	best := none
	for _, s := range b.stream {
		for _, id := range s.open {
			best = min(best, id)
		}
	}
	if best == none {
		return 0, false
	}
	return b.take(best), true
}

func (b *blocks) newStream(seq uint32, channel int) *stream {
	s := &stream{open: make([]uint32, b.geo.lanes()/b.geo.Channels)}
	for i := range s.open {
		s.open[i] = none
	}
	b.stream[streamKey(seq, channel)] = s
	return s
}

// pick is the stream's open block whose turn it is.
func (s *stream) pick() uint32 {
	for {
		id := s.open[s.turn]
		s.pass(s.turn)
		if id != none {
			return id
		}
	}
}

// pop opens a free block for a stream in the lane whose turn it is, or in the one on the channel, else on any, that has most;
// of a lane the block that was erased least.
func (b *blocks) pop(s *stream, channel int) uint32 {
	at := s.turn
	for s.open[at] != none { // a full stream never pops
		at = (at + 1) % len(s.open)
	}
	lane := channel + at*b.geo.Channels
	if len(b.free[lane]) == 0 {
		lane = b.fullest(channel)
	}
	list := b.free[lane]
	best := 0
	for i, id := range list {
		if a, z := b.all[id].erases, b.all[list[best]].erases; a < z || a == z && id < list[best] {
			best = i
		}
	}
	id := list[best]
	list[best] = list[len(list)-1]
	b.free[lane] = list[:len(list)-1]
	b.frees--
	b.all[id].open = true
	if b.all[id].owners == nil {
		b.all[id].owners = make([]*entry, b.geo.BlockPages)
	}
	s.open[at] = id
	s.n++
	s.most = max(s.most, s.n)
	s.pass(at)
	return id
}

// pass gives the turn to the lane behind one. Each round of all lanes begins a lane later than the one before: what repeats in what is written, as a
// head's pages do after as many as the heads have together, does not come to the same lane each time.
func (s *stream) pass(at int) {
	s.turn = (at + 1) % len(s.open)
	if s.gone++; s.gone == len(s.open) {
		s.gone, s.turn = 0, (s.turn+1)%len(s.open)
	}
}

// fullest is the lane with most free blocks, on the channel if it has any.
func (b *blocks) fullest(channel int) (lane int) {
	best := -1
	for i, list := range b.free {
		n := len(list)
		if n > 0 && i%b.geo.Channels == channel {
			n += len(b.all)
		}
		if n > best {
			lane, best = i, n
		}
	}
	return lane
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

// close ends an open block.
func (b *blocks) close(id uint32) {
	b.all[id].open = false
	for _, s := range b.stream {
		for lane, open := range s.open {
			if open == id {
				s.open[lane] = none
				s.n--
			}
		}
	}
	b.look(id)
}

// closeSequence closes the open blocks of a sequence.
func (b *blocks) closeSequence(seq uint32) {
	for ch := range b.geo.Channels {
		s := b.stream[streamKey(seq, ch)]
		if s == nil {
			continue
		}
		delete(b.stream, streamKey(seq, ch))
		for _, id := range s.open {
			if id != none {
				b.all[id].open = false
				b.look(id)
			}
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
