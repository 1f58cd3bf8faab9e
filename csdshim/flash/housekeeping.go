package flash

// Housekeeping is what the flash did by itself since it was asked last: pages moved by garbage collection, in order, and
// blocks erased.
type Housekeeping struct {
	Moved  []Move
	Erased []uint32 // blocks
	Read   []uint32 // pages, to build the embedding copy or to complete a page that was written early
}

// Move is a page that garbage collection copied.
type Move struct{ From, To uint32 }

// Housekeeping hands over what was done since the last call, for the model of the hardware to charge.
func (s *Store) Housekeeping() (h Housekeeping) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, s.housekeeping = s.housekeeping, h
	return h
}
