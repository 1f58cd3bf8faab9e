package kvmanager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"terrace/offload"
)

// frameAlign is what the memory of a block is aligned to, so that storage reads and writes it without a copy.
const frameAlign = 4096

// inBlocks reports whether pages of a kind belong to blocks on tiers.
func (m *Manager) inBlocks(kind int) bool { return m.lower != nil && kind == settled }

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

// makeRoom lets blocks leave memory until that many more bytes fit the budget. A write that fails is tried once more, but not
// on a tier that is full.
func (m *Manager) makeRoom(bytes int64) error {
	failed := m.failed
	for {
		err := m.Room(bytes)
		if err == nil || m.lower == nil {
			return err
		}
		if m.reclaimIdle() {
			continue
		}
		if n := m.failed - failed; n > 1 || n == 1 && errors.Is(m.late, offload.ErrFull) {
			err, m.late = m.late, nil
			return fmt.Errorf("kvmanager: making room in host memory: %w", err)
		}
		some, werr := m.reclaimDirty()
		if werr != nil {
			return fmt.Errorf("kvmanager: making room in host memory: %w", werr)
		}
		if some {
			continue
		}
		if some, werr = m.reclaimEarly(); werr != nil {
			return fmt.Errorf("kvmanager: making room in host memory: %w", werr)
		}
		if !some && !m.cachesYield() {
			return err
		}
	}
}

// reclaimIdle frees the frame of one block that nobody uses and that is stored, the one that will be read last first:
// layers are read in turn, so it is in the layer just read. It does not wait.
func (m *Manager) reclaimIdle() bool {
	if before := m.inUse; m.takeWritten() && m.inUse < before {
		return true
	}
	return m.anyBlock(func(b *block) bool {
		if b.data == nil || !b.idle() || b.dirty {
			return false
		}
		m.vacate(b)
		return true
	})
}

// takeWritten takes blocks back that have been written, so that those that are not to stay leave memory. It does not wait.
func (m *Manager) takeWritten() (some bool) {
	for i := 0; i < len(m.writes); {
		w := m.writes[i]
		if !w.t.Done() {
			i++
			continue
		}
		some = true
		if err := m.await(w); err != nil { // takes it out of the list
			m.note(err)
			m.failed++
		}
	}
	return some
}

// reclaimDirty waits for a write, or writes one block that nobody uses.
func (m *Manager) reclaimDirty() (some bool, err error) {
	if len(m.writes) > 0 {
		return true, m.await(m.writes[0])
	}
	var owner *Sequence
	var found *block
	m.anyBlockOf(func(s *Sequence, b *block) bool {
		if b.data == nil || !b.idle() || !b.dirty {
			return false
		}
		owner, found = s, b
		return true
	})
	if found == nil {
		return false, nil
	}
	found.stays = false
	return true, m.store(owner.home, []*block{found})
}

// reclaimEarly gives up what was fetched for a layer whose turn has not come.
func (m *Manager) reclaimEarly() (some bool, err error) {
	for _, s := range m.tiered {
		for layer := range s.tiers {
			lb := &s.tiers[layer]
			if !lb.early || len(lb.held) == 0 {
				continue
			}
			for _, b := range lb.held {
				if b.move != nil {
					if err := m.await(b.move); err != nil {
						return false, err
					}
				}
			}
			lb.early = false
			cursor := m.cursor
			err := s.Release(layer)
			m.cursor = cursor
			return true, err
		}
	}
	return false, nil
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

func (m *Manager) anyBlock(f func(b *block) bool) bool {
	return m.anyBlockOf(func(_ *Sequence, b *block) bool { return f(b) })
}

// anyBlockOf asks f for blocks of all sequences, layer by layer back from the one released last, until it says yes.
func (m *Manager) anyBlockOf(f func(s *Sequence, b *block) bool) bool {
	layers := m.o.Layers
	for back := range layers {
		layer := (m.cursor - back + layers) % layers
		for _, s := range m.tiered {
			blocks := s.tiers[layer].blocks
			for i := len(blocks) - 1; i >= 0; i-- {
				if f(s, blocks[i]) {
					return true
				}
			}
		}
	}
	return false
}
