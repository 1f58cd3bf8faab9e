package policy

import "slices"

// Merger keeps the best k of scores that stream in from several sources in any order (HillInfer's hierarchical importance
// evaluation, algorithms.md 1.5). The outcome depends on the scores and positions only: higher scores first, then lower
// positions. It holds at most 2k candidates; adding n scores costs O(n).
type Merger struct {
	k          int
	candidates []uint64
	floor      uint64
}

// Reset starts a merge for the best k.
func (m *Merger) Reset(k int) { m.k, m.candidates, m.floor = k, m.candidates[:0], 0 }

// Add takes a block of scores; positions[i] is the position of scores[i].
func (m *Merger) Add(positions []int32, scores []float32) {
	if m.k <= 0 {
		return
	}
	for i, s := range scores {
		key := uint64(order(s))<<32 | uint64(^uint32(positions[i]))
		if key <= m.floor && len(m.candidates) >= m.k {
			continue
		}
		m.candidates = append(m.candidates, key)
		if len(m.candidates) >= 2*m.k {
			m.shrink()
		}
	}
}

// shrink leaves the best k candidates; what is below them later cannot count.
func (m *Merger) shrink() {
	if len(m.candidates) <= m.k {
		return
	}
	selectTop(m.candidates, m.k)
	m.candidates = m.candidates[:m.k]
	m.floor = slices.Min(m.candidates)
}

// Best appends the positions of the best k, ascending.
func (m *Merger) Best(dst []int32) []int32 {
	m.shrink()
	at := len(dst)
	for _, key := range m.candidates {
		dst = append(dst, int32(^uint32(key)))
	}
	slices.Sort(dst[at:])
	return dst
}

// selectTop moves the k largest values to the front (quickselect, median of three).
func selectTop(x []uint64, k int) {
	lo, hi := 0, len(x)-1
	for lo < hi {
		mid := lo + (hi-lo)/2
		pivot := max(min(x[lo], x[mid]), min(max(x[lo], x[mid]), x[hi]))
		i, j := lo, hi
		for i <= j {
			for x[i] > pivot {
				i++
			}
			for x[j] < pivot {
				j--
			}
			if i <= j {
				x[i], x[j] = x[j], x[i]
				i++
				j--
			}
		}
		switch {
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return
		}
	}
}
