package kvmanager

import "fmt"

// Home is the number under which the lower tier stores this sequence's blocks from now on.
func (s *Sequence) Home() uint64 { return s.home.seq }

// AwaitStored waits until the lower tier has the first n blocks of a layer, which are complete, under Home; what was not on
// its way begins to be written.
func (s *Sequence) AwaitStored(layer, n int) error {
	m := s.m
	blocks := s.tiers[layer].blocks
	if n > len(blocks) {
		return fmt.Errorf("kvmanager: layer %d has %d blocks, not %d: %w", layer, len(blocks), n, ErrPlan)
	}
	var out []*block
	for _, b := range blocks[:n] {
		if b.move != nil && !b.move.write {
			if err := m.await(b.move); err != nil {
				return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
			}
		}
		if b.move == nil && (b.dirty || b.home != s.home) {
			if err := m.load(b); err != nil {
				return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
			}
			out = append(out, b)
		}
	}
	if err := m.store(s.home, out); err != nil {
		return err
	}
	for _, b := range blocks[:n] {
		if b.move != nil {
			if err := m.await(b.move); err != nil {
				return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
			}
		}
	}
	return nil
}
