package kvmanager

import (
	"errors"
	"slices"

	"terrace/offload"
)

// backing is a manager's side of the backing store, which holds what the budget does not: the tier below host memory.
type backing struct {
	frames
	homes
	sequences []*tiered   // open ones
	writes    []*transfer // under way, oldest first
	reads     []*transfer // likewise
	cursor    int         // layer that was released last
}

// frames give blocks their memory.
type frames struct{ m *Manager }

// homes are the numbers under which the backing store keeps blocks.
type homes struct {
	queue *offload.Queue
	next  func() uint64 // a number that nobody has
}

// await waits for a transfer and takes its blocks back. Blocks of a failed read have no bytes, those of a failed write are
// still to be stored.
func (k *backing) await(t *transfer) error {
	begun := k.m.o.Clock.Now()
	err := k.m.Await(t.t, len(t.blocks))
	if t.swap != nil {
		t.swap.swaps.waited += k.m.o.Clock.Now() - begun
	}
	if errors.Is(err, ErrStalled) {
		return err
	}
	for _, b := range t.blocks {
		b.move = nil
		if err == nil {
			b.turn(moved)
		} else if b.turn(failed); !b.inMemory() {
			k.empty(b)
		}
	}
	list := &k.reads
	if t.write {
		list = &k.writes
	}
	if i := slices.Index(*list, t); i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	if t.write {
		k.sweep(t.blocks)
	}
	return err
}

// sweep frees the frames of blocks that only waited to be stored.
func (k *backing) sweep(blocks []*block) {
	for _, b := range blocks {
		if b.leaving() {
			k.vacate(b)
		}
	}
}

// vacate lets a stored block leave memory.
func (k *backing) vacate(b *block) {
	b.turn(let)
	k.empty(b)
}

// empty gives a block's frame back.
func (k *frames) empty(b *block) {
	b.data, b.yielding = nil, false
	k.m.drop(k.class(b), b.frame)
}

// newBlock returns an empty block in memory with one reference.
func (k *frames) newBlock(layer, group int) (*block, error) {
	b := &block{refs: 1, layer: int32(layer), group: int32(group), pos: make([]int32, k.m.heads(layer)*k.m.o.Layout.Tokens)}
	return b, k.occupy(b)
}

// tokens is how many tokens a block has room for, in each head.
func (k *frames) tokens() int { return k.m.o.Layout.Tokens }

// class is where a block's frame comes from.
func (k *frames) class(b *block) *pageClass { return k.m.layers[b.layer].classes[mainPages] }

// occupy gives a block a frame of undefined bytes.
func (k *frames) occupy(b *block) error {
	p, err := k.m.take(k.class(b))
	if err != nil {
		return err
	}
	b.frame, b.data = p, k.class(b).pages.Data(p)
	return nil
}

// raise gives a block that is below a frame; fetch follows.
func (k *backing) raise(b *block) error {
	err := k.occupy(b)
	if err == nil {
		b.turn(asked)
	}
	return err
}

// release takes one reference to a block away.
func (k *backing) release(b *block) error {
	if b.refs--; b.refs > 0 {
		return nil
	}
	var err error
	if b.moving() {
		err = k.await(b.move)
	}
	if !b.moving() { // else the tier may still write there: the frame is lost rather than reused
		held := b.inMemory()
		if b.turn(left); held {
			k.empty(b)
		}
	}
	return errors.Join(err, k.leaveHome(b))
}

// leaveHome forgets where a block was stored; the last one to leave an old home has its records dropped.
func (k *homes) leaveHome(b *block) error {
	h := b.home
	if h == nil {
		return nil
	}
	b.home = nil
	h.records--
	return k.dropHome(h)
}

func (k *homes) dropHome(h *home) error {
	if h.records > 0 || h.current {
		return nil
	}
	return k.queue.Drop(h.seq)
}

func (k *homes) newHome() *home { return &home{seq: k.next(), current: true} }

// store begins to write blocks of one sequence under its home; those that others hold too stay under the home that they had before the fork,
// since the sequence may write to another block of the same number while they read this one.
func (k *backing) store(own *home, blocks []*block) error {
	if len(blocks) == 0 {
		return nil
	}
	recs := make([]offload.Record, len(blocks))
	for i, b := range blocks {
		h := own
		if b.refs > 1 {
			h = b.home
		}
		if b.home != h {
			if err := k.leaveHome(b); err != nil {
				return err
			}
			b.home = h
			h.records++
		}
		b.turn(sent)
		recs[i] = b.record(k.m)
	}
	t := &transfer{t: k.queue.Write(offload.WriteBack, recs), blocks: slices.Clone(blocks), write: true}
	for _, b := range blocks {
		b.move = t
	}
	k.writes = append(k.writes, t)
	return nil
}

// fetch begins to read blocks that were raised.
func (k *backing) fetch(p offload.Priority, blocks []*block) {
	if len(blocks) == 0 {
		return
	}
	recs := make([]offload.Record, len(blocks))
	for i, b := range blocks {
		recs[i] = b.record(k.m)
	}
	t := &transfer{t: k.queue.Read(p, recs), blocks: slices.Clone(blocks)}
	for _, b := range blocks {
		b.move = t
	}
	k.reads = append(k.reads, t)
}

// load brings a block into memory, where it stays until somebody else wants the room: also one that only waits to be stored, which would
// leave when it is.
func (k *backing) load(b *block) error {
	b.pins++
	defer func() { b.pins-- }()
	if !b.inMemory() {
		if err := k.raise(b); err != nil {
			return err
		}
		k.fetch(offload.Demand, []*block{b})
	}
	if b.moving() {
		return k.await(b.move)
	}
	return nil
}
