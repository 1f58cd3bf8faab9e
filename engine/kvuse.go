package engine

import "terrace/attention"

// KVUse is what a session holds and reads of its KV, measured.
type KVUse struct {
	Tokens      float64 // held by a layer and KV head, on average
	Fraction    float64 // of the positions read so far
	Bytes       int64   // of pages
	SketchBytes int64   // of what a selecting policy scans instead of the keys
	TokensRead  float64 // by a decode step, a layer and KV head, on average; 0 before the first
	Swaps       SwapUse // of a policy that prunes rows
}

// KVUse reports what the session holds now.
func (s *Session) KVUse() KVUse {
	m := s.e.m
	u := KVUse{Bytes: s.seq.Bytes(), Swaps: s.swapUse()}
	held := 0
	for layer := range m.Layers {
		for g := range m.KVHeads {
			held += s.seq.Tokens(layer, g)
		}
	}
	u.Tokens = float64(held) / float64(m.Layers*m.KVHeads)
	if s.next > 0 {
		u.Fraction = u.Tokens / float64(s.next)
	}
	if s.reads > 0 {
		u.TokensRead = float64(s.readTokens) / float64(s.reads)
	}
	if s.policy != nil {
		for i := range s.policy.state {
			if sc := s.policy.state[i].index; sc != nil {
				u.SketchBytes += sc.Bytes()
			}
		}
	}
	return u
}

// countReads adds what a decode step reads of a layer.
func (s *Session) countReads(layer int, seq *attention.Seq) {
	selected, pooled := seq.Select, s.place.serves(layer)
	for g := range s.e.m.KVHeads {
		n := s.seq.Tokens(layer, g)
		if pooled {
			n = seq.Views[g].Tokens()
		}
		if w := s.e.m.Layer[layer].Window; w > 0 {
			n = min(n, w)
		}
		if selected != nil && selected[g] != nil {
			n = len(selected[g])
		}
		s.readTokens += int64(n)
		s.reads++
	}
}
