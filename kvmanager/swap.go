package kvmanager

import (
	"fmt"
	"slices"
	"time"

	"terrace/offload"
)

// Swaps are tokens of a sequence that leave its views and come back, whole pages of a layer at a time: those that are out now, and how long
// callers have waited for any.
type Swaps struct {
	s        *Sequence
	inactive map[inactiveKey]*inactivePages // pages out of every view
	waited   time.Duration
}

// inactiveKey names inactive tokens: a layer and the first of their positions.
type inactiveKey struct {
	layer int
	from  int32
}

// inactivePages is the pages of some tokens of one layer, out of every view.
type inactivePages struct {
	detached
	pos []int32
}

// Deactivate takes the tokens of a layer at positions from to to-1 out of its views; their pages stay as they are
// until Activate puts them back, and count as the sequence's; on tiers they leave memory. They must fill whole pages in every KV
// head. Caches of floats only (ErrPlan).
func (x *Swaps) Deactivate(layer int, from, to int32) error {
	key, t := inactiveKey{layer, from}, x.s.m.o.Layout.Tokens
	if x.inactive[key] != nil {
		return fmt.Errorf("kvmanager: positions %d to %d of layer %d are inactive already: %w", from, to-1, layer, ErrPlan)
	}
	if !x.s.m.o.Layers.Keeps(layer) {
		return fmt.Errorf("kvmanager: layer %d keeps no tokens: %w", layer, ErrPlan)
	}
	first, n, pos := make([]int, x.s.m.heads(layer)), 0, []int32(nil)
	for g := range first {
		lo, hi := x.s.lists.at(layer, g).between(from, to)
		if g == 0 {
			pos = slices.Clone(x.s.lists.at(layer, 0).pos[lo:hi])
		}
		if !x.s.enc.movesTokens() || lo%t != 0 || hi%t != 0 || lo == hi || !slices.Equal(pos, x.s.lists.at(layer, g).pos[lo:hi]) {
			return fmt.Errorf("kvmanager: positions %d to %d of layer %d head %d are tokens %d to %d, want the same whole pages of %d in every head, in a cache of floats: %w", from, to-1, layer, g, lo, hi-1, t, ErrPlan)
		}
		first[g], n = lo/t, (hi-lo)/t
	}
	d, err := x.s.store.detach(layer, first, n)
	if d == nil {
		return err
	}
	if x.inactive == nil {
		x.inactive = map[inactiveKey]*inactivePages{}
	}
	x.inactive[key] = &inactivePages{d, pos}
	for g, a := range first {
		h := x.s.lists.at(layer, g)
		h.main.pages = slices.Delete(h.main.pages, a, a+n)
		h.main.tokens -= n * t
		h.pos = slices.Delete(h.pos, a*t, (a+n)*t)
	}
	return err
}

// Activate puts tokens back to their place by position; from is the first of them, as Deactivate was called with.
func (x *Swaps) Activate(layer int, from int32) error {
	p := x.inactive[inactiveKey{layer, from}]
	if p == nil {
		return fmt.Errorf("kvmanager: position %d of layer %d is not inactive: %w", from, layer, ErrPlan)
	}
	if x.s.splits(layer, p.pos[0], p.pos[len(p.pos)-1]) {
		return fmt.Errorf("kvmanager: positions from %d on do not fit between the pages of layer %d: %w", from, layer, ErrPlan)
	}
	x.s.place(layer, p.detached, 0, len(p.pos)/x.s.m.o.Layout.Tokens, p.pos)
	delete(x.inactive, inactiveKey{layer, from})
	return nil
}

// parts refuses a cut within inactive tokens, which come and go as a whole.
func (x *Swaps) parts(next int32) error {
	for key, p := range x.inactive {
		if last := p.pos[len(p.pos)-1]; key.from < next && last >= next {
			return fmt.Errorf("kvmanager: truncating to position %d, within the inactive tokens %d to %d of layer %d: %w", next, key.from, last, key.layer, ErrPlan)
		}
	}
	return nil
}

// drop gives back the inactive tokens of positions from next on.
func (x *Swaps) drop(next int32) {
	for key, p := range x.inactive {
		if key.from >= next {
			x.s.m.note(p.free())
			delete(x.inactive, key)
		}
	}
}

// Inactive reports whether the tokens of a layer from a position on are inactive, as Deactivate was called.
func (x *Swaps) Inactive(layer int, from int32) bool {
	return x.inactive[inactiveKey{layer, from}] != nil
}

// Bytes is what the inactive tokens' pages hold in host memory.
func (x *Swaps) Bytes() (n int64) {
	for _, p := range x.inactive {
		n += p.bytes()
	}
	return n
}

// Bring begins to read the tokens of a layer, from a position on, that are to stay in host memory and are not there, as Activate
// leaves them, as far as there is room, and does not wait. The others are read with their layer. Without a backing store there is
// nothing to read.
func (x *Swaps) Bring(layer int, low int32) {
	if t, ok := x.s.store.(*tiered); ok {
		bring(t, layer, firstBlock(t, layer, low))
	}
}

// Await waits until nothing is under way any more that Deactivate and Bring have begun.
func (x *Swaps) Await() error {
	t, ok := x.s.store.(*tiered)
	if !ok {
		return nil
	}
	for _, tr := range slices.Concat(t.k.writes, t.k.reads) {
		if tr.swap == x.s {
			if err := t.k.await(tr); err != nil {
				return fmt.Errorf("kvmanager: a swap: %w", err)
			}
		}
	}
	return nil
}

// Waited is how long callers have waited for what Deactivate and Bring have begun, by the cache's clock.
func (x *Swaps) Waited() time.Duration { return x.waited }

// bring reads no further than the part that the plan leaves room for: what is beyond it would take the room of the next layers.
func bring(t *tiered, layer, from int) {
	k, lb := t.k, &t.layers[layer]
	lb.keep(from, t.quota[layer])
	var missing []*block
	for _, b := range lb.blocks[from:min(from+t.quota[layer], len(lb.blocks))] {
		if b.inMemory() {
			continue
		}
		if k.m.Room(k.class(b).bytes) != nil || k.raise(b) != nil {
			break
		}
		k.m.fetched += int64(len(b.pos))
		missing = append(missing, b)
	}
	k.fetch(offload.Prefetch, missing)
	swapping(t.s, missing)
}

// swapping notes that the transfers of blocks are a sequence's swap.
func swapping(s *Sequence, blocks []*block) {
	for _, b := range blocks {
		if b.moving() {
			b.move.swap = s
		}
	}
}
