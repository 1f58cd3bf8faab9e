package model

import (
	"math"
	"slices"
)

// ranking is candidates of which so many are sorted, the likeliest first, as somebody has asked for: of a vocabulary of 49k a
// draw looks at a few, and sorting all takes milliseconds.
type ranking struct {
	c      []candidate
	sorted int
}

// leastSorted is how many candidates are sorted first; then eight times as many.
const leastSorted = 128

// at is candidate i in the order of likelihood.
func (r *ranking) at(i int) candidate {
	for r.sorted <= i {
		n := min(max(leastSorted, 8*r.sorted), len(r.c))
		rest := r.c[r.sorted:]
		if more := n - r.sorted; more < len(rest)/4 {
			rest = topCandidates(rest, more)
		} else {
			n = len(r.c)
		}
		slices.SortFunc(rest, byLogit)
		r.sorted = n
	}
	return r.c[i]
}

// cut leaves the n likeliest, all of which at has seen.
func (r *ranking) cut(n int) {
	r.c, r.sorted = r.c[:n], min(r.sorted, n)
}

// nucleus is the size of the smallest prefix whose probability reaches p.
func (r *ranking) nucleus(p float64) int {
	if len(r.c) == 0 {
		return 0
	}
	var total, sum float64
	top := r.at(0).logit
	for _, x := range r.c {
		total += math.Exp(float64(x.logit - top))
	}
	for i := range r.c {
		if sum += math.Exp(float64(r.at(i).logit - top)); sum >= p*total {
			return i + 1
		}
	}
	return len(r.c)
}

// above is how many candidates reach a logit, at least one.
func (r *ranking) above(logit float32) int {
	n := 1
	for n < len(r.c) && r.at(n).logit >= logit {
		n++
	}
	return n
}

// byLogit sorts the likeliest first and ties by id.
func byLogit(a, b candidate) int {
	switch {
	case a.logit > b.logit:
		return -1
	case a.logit < b.logit:
		return 1
	}
	return a.id - b.id
}

// topCandidates moves the k likeliest to the front with a heap of size k (the vocabulary is much larger than k).
func topCandidates(c []candidate, k int) []candidate {
	heap := c[:k]
	less := func(a, b candidate) bool { return byLogit(a, b) > 0 } // the least likely on top
	down := func(i int) {
		for {
			j := 2*i + 1
			if j >= k {
				return
			}
			if j+1 < k && less(heap[j+1], heap[j]) {
				j++
			}
			if !less(heap[j], heap[i]) {
				return
			}
			heap[i], heap[j] = heap[j], heap[i]
			i = j
		}
	}
	for i := k/2 - 1; i >= 0; i-- {
		down(i)
	}
	for i := k; i < len(c); i++ {
		if less(heap[0], c[i]) {
			heap[0], c[i] = c[i], heap[0]
			down(0)
		}
	}
	return heap
}
