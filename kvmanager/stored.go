package kvmanager

// Home is the number under which the backing store keeps this sequence's blocks from now on.
func (s *Sequence) Home() uint64 { return s.store.(*tiered).home.seq }

// AwaitStored waits until the backing store has the first n blocks of a layer, which are complete, under Home; what was not on
// its way begins to be written.
func (s *Sequence) AwaitStored(layer, n int) error { return s.store.(*tiered).awaitStored(layer, n) }
