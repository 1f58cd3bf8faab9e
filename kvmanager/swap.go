package kvmanager

import (
	"fmt"
	"slices"
	"time"

	"terrace/offload"
)

// Bring begins to read the tokens of a layer, from a position on, that are to stay in host memory and are not there, as Activate
// leaves them, as far as there is room, and does not wait. The others are read with their layer. Without a backing store there is
// nothing to read.
func (s *Sequence) Bring(layer int, low int32) {
	if t, ok := s.store.(*tiered); ok {
		t.bring(layer, t.firstBlock(layer, low))
	}
}

// AwaitSwaps waits until nothing is under way any more that Deactivate and Bring have begun.
func (s *Sequence) AwaitSwaps() error {
	t, ok := s.store.(*tiered)
	if !ok {
		return nil
	}
	for _, x := range slices.Concat(t.k.writes, t.k.reads) {
		if x.swap == s {
			if err := t.k.await(x); err != nil {
				return fmt.Errorf("kvmanager: a swap: %w", err)
			}
		}
	}
	return nil
}

// SwapWait is how long callers have waited for what Deactivate and Bring have begun, by the cache's clock.
func (s *Sequence) SwapWait() time.Duration { return s.swapWait }

// bring reads no further than the part that the plan leaves room for: what is beyond it would take the room of the next layers.
func (t *tiered) bring(layer, from int) {
	k, blocks := t.k, t.layers[layer].blocks
	t.keep(layer, from)
	var missing []*block
	for _, b := range blocks[from:min(from+t.quota[layer], len(blocks))] {
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
	t.swapping(missing)
}

// swapping notes that the transfers of blocks are a swap's.
func (t *tiered) swapping(blocks []*block) {
	for _, b := range blocks {
		if b.moving() {
			b.move.swap = t.s
		}
	}
}
