package kvmanager

// Leaves reports whether a block of a layer of a text, given by its place, goes to the backing store once it is full: it is not one
// of those that the last plan has stay in memory.
func Leaves(s *Sequence, layer, block int) bool {
	t, ok := s.store.(*tiered)
	if !ok {
		return false
	}
	from := t.layers[layer].from
	return block < from || block >= from+t.quota[layer]
}
