package kvmanager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Charge counts bytes beside the pages (sketches, token caches) against the budget; on ErrBudget nothing has changed.
func (m *Manager) Charge(bytes int64) error {
	if err := m.makeRoom(bytes); err != nil {
		return err
	}
	m.inUse += bytes
	m.charged += bytes
	m.peak = max(m.peak, m.inUse)
	return nil
}

// Refund takes a charge back.
func (m *Manager) Refund(bytes int64) {
	m.inUse -= bytes
	m.charged -= bytes
}

// makeRoom lets blocks leave memory until that many more bytes fit the budget. It gives up only when nothing is left that could
// leave and nothing is on its way: whether there is room does not depend on how fast transfers are. What fails has been
// tried again by the queue already (see offload), so its error ends the request.
func (m *Manager) makeRoom(bytes int64) error {
	for {
		err := m.Room(bytes)
		if err == nil {
			return nil
		}
		if m.backing == nil {
			if m.statesYield() {
				continue
			}
			return err
		}
		some, rerr := m.backing.reclaim()
		if rerr != nil {
			return fmt.Errorf("kvmanager: making room in host memory: %w", rerr)
		}
		if !some && !m.cachesYield() && !m.statesYield() {
			return err
		}
	}
}

// Reclaimer is memory that is charged to the budget and can be given back: caches of single tokens.
type Reclaimer interface {
	// Bytes is what is charged.
	Bytes() int64
	// Reclaim gives some of it back; false = nothing more can be.
	Reclaim() bool
}

// AddReclaimer lets the manager take memory back from r when something else needs it.
func (m *Manager) AddReclaimer(r Reclaimer) { m.caches = append(m.caches, r) }

// RemoveReclaimer ends that.
func (m *Manager) RemoveReclaimer(r Reclaimer) {
	m.caches = slices.DeleteFunc(m.caches, func(x Reclaimer) bool { return x == r })
}

// cachesYield lets the largest cache give memory back.
func (m *Manager) cachesYield() bool {
	caches := slices.SortedFunc(slices.Values(m.caches), func(a, b Reclaimer) int { return cmp.Compare(b.Bytes(), a.Bytes()) })
	return slices.ContainsFunc(caches, Reclaimer.Reclaim)
}

// reclaim frees the frame of a block, or waits for or begins what will let one be freed; false = there is nothing. What costs
// nothing comes first, what was fetched ahead last.
func (k *backing) reclaim() (some bool, err error) {
	for _, try := range [...]func() (bool, error){k.reclaimIdle, k.reclaimDirty, k.reclaimPrefetched, k.awaitRead} {
		if some, err = try(); some || err != nil {
			return some, err
		}
	}
	return false, nil
}

// reclaimIdle frees the frame of one block that nobody uses and that is stored, the one that will be read last first:
// layers are read in turn, so it is in the layer just read. It does not wait.
func (k *backing) reclaimIdle() (bool, error) {
	before := k.m.inUse
	if err := k.takeWritten(); err != nil || k.m.inUse < before {
		return true, err
	}
	_, b := k.find(func(b *block) bool { return b.status == cached && b.idle() })
	if b == nil {
		return false, nil
	}
	k.vacate(b)
	return true, nil
}

// takeWritten takes blocks back that have been written, so that those that are not to stay leave memory. It does not wait; the
// error is the first write's that failed.
func (k *backing) takeWritten() (err error) {
	for i := 0; i < len(k.writes); {
		w := k.writes[i]
		if !w.t.Ready() {
			i++
			continue
		}
		if werr := k.await(w); err == nil { // takes it out of the list
			err = werr
		}
	}
	return err
}

// reclaimDirty waits for a write, or begins to write one block that nobody uses.
func (k *backing) reclaimDirty() (bool, error) {
	if len(k.writes) > 0 {
		return true, k.await(k.writes[0])
	}
	owner, b := k.find(func(b *block) bool { return b.status == unstored && b.idle() })
	if b == nil {
		return false, nil
	}
	b.yielding = true
	return true, k.store(owner.home, []*block{b})
}

// reclaimPrefetched gives up what was fetched for a layer whose turn has not come.
func (k *backing) reclaimPrefetched() (bool, error) {
	for _, s := range k.sequences {
		for layer := range s.layers {
			lb := &s.layers[layer]
			if !lb.prefetched || len(lb.held) == 0 {
				continue
			}
			for _, b := range lb.held {
				if b.moving() {
					if err := k.awaitUnwanted(b.move); err != nil {
						return false, err
					}
				}
			}
			lb.prefetched = false
			cursor := k.cursor
			err := s.release(layer)
			k.cursor = cursor
			return true, err
		}
	}
	return false, nil
}

// awaitRead waits for the oldest read: its blocks may leave then, unless a pass holds them.
func (k *backing) awaitRead() (bool, error) {
	for _, r := range k.reads {
		if slices.ContainsFunc(r.blocks, unwanted) {
			return true, k.awaitUnwanted(r)
		}
	}
	return false, nil
}

// unwanted reports whether a block would be idle but for its transfer.
func unwanted(b *block) bool { return b.pins == 0 && b.writable == 0 }

// awaitUnwanted waits for a transfer that nobody waits for any more. What failed to be read is read again when somebody does.
func (k *backing) awaitUnwanted(t *transfer) error {
	err := k.await(t)
	if t.write || errors.Is(err, ErrStalled) {
		return err
	}
	return nil
}

// find returns a block for which yes is true, and a sequence that holds it: layer by layer back from the one released last,
// last blocks first.
func (k *backing) find(yes func(b *block) bool) (*tiered, *block) {
	layers := len(k.m.layers)
	for back := range layers {
		layer := (k.cursor - back + layers) % layers
		for _, s := range k.sequences {
			blocks := s.layers[layer].blocks
			for i := len(blocks) - 1; i >= 0; i-- {
				if yes(blocks[i]) {
					return s, blocks[i]
				}
			}
		}
	}
	return nil, nil
}
