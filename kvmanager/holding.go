package kvmanager

import (
	"fmt"
	"slices"

	"terrace/offload"
)

func (t *tiered) prefetch(layer int, low int32) {
	lb := &t.layers[layer]
	lb.from = firstBlock(t, layer, low)
	lb.prefetched = len(lb.held) == 0 || lb.prefetched
	_ = t.hold(layer, false)
}

// firstBlock is the block with the first token not before a position.
func firstBlock(t *tiered, layer int, low int32) int {
	if low <= 0 {
		return 0
	}
	first := len(t.layers[layer].blocks)
	for g := range t.s.m.heads(layer) {
		first = min(first, firstAtLeast(t.s.lists.at(layer, g).pos, low)/t.k.tokens())
	}
	return first
}

// hold pins the blocks of a layer from lb.from on and begins to read those that are not in memory. Without must it stops
// where there is no free frame.
func (t *tiered) hold(layer int, must bool) error {
	k, lb, priority := t.k, &t.layers[layer], offload.Prefetch
	if must {
		priority = offload.Demand
	}
	pinned := make(map[*block]bool, len(lb.held))
	for _, b := range lb.held {
		pinned[b] = true
	}
	var missing []*block
	defer func() { k.fetch(priority, missing) }()
	for _, b := range lb.blocks[lb.from:] {
		if !b.inMemory() { // also where an earlier read of it failed
			for !must && k.m.Room(k.class(b).bytes) != nil { // a layer's blocks may be larger than those that make room
				if some, err := k.reclaimIdle(); !some || err != nil {
					k.m.note(err)
					return nil
				}
			}
			if err := k.raise(b); err != nil {
				return err
			}
			missing = append(missing, b)
			k.m.fetched += int64(len(b.pos))
		}
		if !pinned[b] {
			k.m.asked += int64(len(b.pos))
			b.pins++
			lb.held = append(lb.held, b)
		}
	}
	return nil
}

func (t *tiered) acquire(layer int, low int32) error {
	if err := t.gather(layer, low); err != nil {
		return err
	}
	return t.writeThrough(layer)
}

// gather holds a layer's blocks and waits for those that are read.
func (t *tiered) gather(layer int, low int32) error {
	lb := &t.layers[layer]
	lb.from, lb.prefetched = firstBlock(t, layer, low), false
	if err := t.hold(layer, true); err != nil {
		return err
	}
	for _, b := range lb.blocks[lb.from:] {
		if b.reading() {
			if err := t.k.await(b.move); err != nil {
				return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
			}
		}
	}
	t.show(layer, lb.from, true)
	return nil
}

// show points the pages of a layer at their bytes, or at nothing where a block may leave memory.
func (t *tiered) show(layer, from int, visible bool) {
	lb := &t.layers[layer]
	for g := range t.s.m.heads(layer) {
		p := t.main(layer, g).pages
		for i := from; i < len(p); i++ {
			if visible || lb.blocks[i].writable > 0 {
				p[i].Data = lb.blocks[i].page(t.s.m, g)
			} else {
				p[i].Data = nil
			}
		}
	}
}

// writeThrough begins to write what is complete and not to stay in memory.
func (t *tiered) writeThrough(layer int) error {
	lb := &t.layers[layer]
	lb.keep(lb.from, t.quota[layer])
	var out []*block
	for _, b := range lb.blocks {
		if b.status == unstored && b.writable == 0 && !b.stays() {
			out = append(out, b)
		}
	}
	return t.k.store(t.home, out)
}

// keep notes which blocks are to stay in memory: from one on, as many as the plan leaves room for.
func (lb *layerBlocks) keep(from, quota int) {
	for _, b := range lb.staying {
		b.staying--
	}
	clear(lb.staying)
	from = min(from, len(lb.blocks))
	lb.staying = append(lb.staying[:0], lb.blocks[from:min(from+quota, len(lb.blocks))]...)
	for _, b := range lb.staying {
		b.staying++
	}
}

func (t *tiered) release(layer int) error {
	lb := &t.layers[layer]
	for _, b := range lb.held {
		b.pins--
		if b.reading() && b.move.t.Ready() {
			_ = t.k.await(b.move) // fetched ahead and not wanted after all: where it failed it is read again when it is
		}
	}
	clear(lb.held)
	lb.held = lb.held[:0]
	t.show(layer, 0, false)
	if err := t.writeThrough(layer); err != nil {
		return err
	}
	t.k.sweep(lb.blocks)
	t.k.cursor = layer
	return nil
}

// awaitStored waits until the backing store has the first n blocks of a layer, which are complete, under the sequence's home;
// what was not on its way begins to be written.
func (t *tiered) awaitStored(layer, n int) error {
	blocks := t.layers[layer].blocks
	if n > len(blocks) {
		return fmt.Errorf("kvmanager: layer %d has %d blocks, not %d: %w", layer, len(blocks), n, ErrPlan)
	}
	for i, b := range blocks[:n] {
		if b.refs > 1 { // each sequence has its own there
			if err := t.ownBlock(layer, i); err != nil {
				return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
			}
		}
	}
	var out []*block
	for _, b := range blocks[:n] {
		if b.reading() {
			if err := t.k.await(b.move); err != nil {
				return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
			}
		}
		if !b.moving() && (b.status == unstored || b.home != t.home) {
			if err := t.k.load(b); err != nil {
				return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
			}
			out = append(out, b)
		}
	}
	if err := t.k.store(t.home, out); err != nil {
		return err
	}
	for _, b := range slices.Clone(blocks[:n]) {
		if b.moving() {
			if err := t.k.await(b.move); err != nil {
				return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
			}
		}
	}
	return nil
}
