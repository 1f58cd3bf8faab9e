package tokencache

// A slot's eviction priority decides who gives way in its shard: the lowest first. Where the shard's selection was made from one score a
// token (of all KV heads, or of its own), it is a moving average of how far the token's score lies above the worst that was picked, in units of that one's
// distance from the mean: tokens just below the cut are likely to be picked next, and neighbours fall together, so that they
// are read together. Otherwise it is the step of the last use.

// priorityDecay is how much of a slot's priority a step leaves.
const priorityDecay = 0.8

// scale is how scores of a layer's tokens become priorities.
type scale struct {
	scores    []float32 // nil = there are none
	cut, unit float32   // the worst score that was picked, 1 over its distance from the mean
}

// scaleOf looks at the scores that picks were made from: [tokens], nil where there are none or they don't tell tokens apart.
func scaleOf(scores []float32, picks []int32) scale {
	const every = 16 // tokens, for the mean
	if len(scores) == 0 || len(picks) == 0 {
		return scale{}
	}
	w, sum, n := scale{scores: scores, cut: scores[0]}, float32(0), 0
	for i := 0; i < len(scores); i += every {
		sum += scores[i]
		n++
	}
	first := true
	for _, i := range picks {
		if int(i) < len(scores) && (first || scores[i] < w.cut) {
			w.cut, first = scores[i], false
		}
	}
	distance := w.cut - sum/float32(n)
	if first || !(distance > 0) || distance > 1e30 {
		return scale{}
	}
	w.unit = 1 / distance
	return w
}

// of is a token's priority by its score alone, -2 to 1.
func (w *scale) of(token int32) float32 {
	if int(token) >= len(w.scores) {
		return 0
	}
	return max(-2, min(1, (w.scores[token]-w.cut)*w.unit))
}

// age moves the priorities of a shard's slots towards what the tokens score now.
func (s *shard) age(w *scale) {
	if w.scores == nil {
		return
	}
	for i, token := range s.owner {
		if token >= 0 {
			s.priority[i] += (1 - priorityDecay) * (w.of(token) - s.priority[i])
		}
	}
}

// listVictims lists the n slots of a shard with the lowest priorities that were not used in this step, lowest first.
func (s *shard) listVictims(n int) {
	heap := s.victims[:0] // the highest priority on top
	for i, granule := range s.owner {
		switch {
		case granule < 0 || s.lastUse[i] >= s.of.step:
		case len(heap) < n:
			heap = append(heap, int32(i))
			s.up(heap)
		case s.priority[i] < s.priority[heap[0]]:
			heap[0] = int32(i)
			s.down(heap)
		}
	}
	for rest := heap; len(rest) > 1; { // in order, as heap sort does
		last := len(rest) - 1
		rest[0], rest[last] = rest[last], rest[0]
		rest = rest[:last]
		s.down(rest)
	}
	s.victims, s.next = heap, 0
}

func (s *shard) up(heap []int32) {
	for i := len(heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if s.priority[heap[i]] <= s.priority[heap[parent]] {
			return
		}
		heap[i], heap[parent] = heap[parent], heap[i]
		i = parent
	}
}

func (s *shard) down(heap []int32) {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && s.priority[heap[child+1]] > s.priority[heap[child]] {
			child++
		}
		if s.priority[heap[child]] <= s.priority[heap[i]] {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// forgetVictims drops the list of who gives way: the shard's slots have changed.
func (s *shard) forgetVictims() { s.victims, s.next = s.victims[:0], 0 }
