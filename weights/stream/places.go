package stream

// Where an expert's weights are, as a letter.
const (
	InFile   = 'a' // on the disk alone
	OnTheWay = 'b' // being read
	InMemory = 'c'
	Used     = 'd' // in memory, and chosen by the layer's newest step
)

// Places says where each expert of a layer is, a letter each; nil of a layer without experts.
func (s *Store) Places(layer int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if layer >= len(s.layers) || len(s.layers[layer].units) == 0 {
		return nil
	}
	l := &s.layers[layer]
	out := make([]byte, len(l.units))
	for e, u := range l.units {
		switch out[e] = InFile; {
		case u.state == coming:
			out[e] = OnTheWay
		case u.state == here && l.clock > 0 && u.keep.at == l.clock:
			out[e] = Used
		case u.state == here:
			out[e] = InMemory
		}
	}
	return out
}
