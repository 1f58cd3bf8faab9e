package policy

import (
	"math"
	"slices"

	"terrace/internal/kernels"
)

// picker chooses the best of a list of scores: it finds the k-th best by halving a list of candidates, then writes the
// indices of all that reach it, which come out ascending by themselves. Equal scores are decided by the lowest index; NaN is
// below everything. The zero value is ready; a picker keeps its scratch and allocates nothing once it has grown.
type picker struct {
	candidates, spare []float32
	sample            [samples + kernels.Room]float32
}

// order maps float32 to uint32 so that a < b exactly if order(a) < order(b); -0 equals 0, NaN is lowest.
func order(f float32) uint32 {
	if f != f {
		return 0
	}
	b := math.Float32bits(f + 0)
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

// best appends to dst the indices, plus base, of the k highest scores, ascending.
func (p *picker) best(dst []int32, scores []float32, k int, base int32) []int32 {
	n := len(scores)
	if k >= n {
		return span(dst, int(base), int(base)+n)
	}
	if k <= 0 {
		return dst
	}
	cut, numbers := p.cut(scores, k)
	if !numbers {
		return withNaN(dst, scores, k, base)
	}
	at := len(dst)
	dst = slices.Grow(dst, n+kernels.Room)
	found := kernels.Reaching(dst[at:at+n+kernels.Room], scores, cut, base)
	return dropTies(dst[:at+found], scores, cut, found-k, base)
}

// dropTies removes the last surplus of the indices whose scores are at the cut.
func dropTies(dst []int32, scores []float32, cut float32, surplus int, base int32) []int32 {
	if surplus <= 0 {
		return dst
	}
	from := len(dst)
	for left := surplus; left > 0; {
		if from--; scores[dst[from]-base] == cut {
			left--
		}
	}
	kept := dst[:from]
	for _, i := range dst[from:] {
		if scores[i-base] != cut {
			kept = append(kept, i)
		}
	}
	return kept
}

// withNaN appends the best k where fewer than k scores are numbers: all of those, and the first others.
func withNaN(dst []int32, scores []float32, k int, base int32) []int32 {
	for _, s := range scores {
		if s == s {
			k--
		}
	}
	for i, s := range scores {
		if s != s {
			if k == 0 {
				continue
			}
			k--
		}
		dst = append(dst, base+int32(i))
	}
	return dst
}

// samples is how many scores of a long list are looked at to guess a bound that somewhat more than k scores reach.
const samples = 512

// few is when the rest of a list is sorted.
const few = 24

// cut finds the k-th best score (0 < k <= len); false where fewer than k are numbers.
func (p *picker) cut(scores []float32, k int) (float32, bool) {
	n := len(scores)
	p.candidates, p.spare = sized(p.candidates, n+kernels.Room), sized(p.spare, n+kernels.Room)
	m := 0
	if n >= 4*samples && k <= n/3 {
		m = kernels.AtLeast(p.candidates, scores, p.guess(scores, k))
	}
	if m < k {
		m = kernels.AtLeast(p.candidates, scores, -infinity)
	}
	if m < k {
		return 0, false
	}
	return p.find(p.candidates[:m+kernels.Room], p.spare, m, k), true
}

// guess is a bound that rather more than k scores reach.
func (p *picker) guess(scores []float32, k int) float32 {
	n := len(scores)
	stride := n / samples
	m := 0
	for i := range samples {
		x := scores[i*stride+i%stride]
		p.sample[m] = x
		if x == x {
			m++
		}
	}
	// Of the samples, k/n·samples are expected above the cut; the margin is four standard deviations.
	expected := float64(k) / float64(n) * samples
	want := int(expected + 4*math.Sqrt(expected) + 4)
	if want > m {
		return -infinity
	}
	return p.find(p.sample[:], p.spare, m, want)
}

// find is the k-th best of the n numbers that x begins with; x and spare have room behind them and are used up.
func (p *picker) find(x, spare []float32, n, k int) float32 {
	for n > few {
		pivot := pivotOf(x[:n], k)
		m := kernels.AtLeast(spare[:n+kernels.Room], x[:n], pivot)
		switch {
		case m < k:
			k -= m
			n = kernels.Below(x, x[:n], pivot)
			continue
		case m == n: // the pivot is the least of them
			above := math.Nextafter32(pivot, infinity)
			if m = kernels.AtLeast(spare[:n+kernels.Room], x[:n], above); m < k || above == pivot {
				return pivot
			}
		}
		x, spare, n = spare, x, m
	}
	slices.Sort(x[:n])
	return x[n-k]
}

// pivotOf guesses the k-th best from nine numbers.
func pivotOf(x []float32, k int) float32 {
	var s [9]float32
	for i := range s {
		s[i] = x[i*(len(x)-1)/(len(s)-1)]
	}
	slices.Sort(s[:])
	return s[len(s)-1-min(k*len(s)/len(x), len(s)-1)]
}

// worst returns the index of the lowest score in scores[from:to]; the lowest index wins ties, but NaN counts as lowest.
func worst(scores []float32, from, to int) int {
	at, low := from, order(scores[from])
	for i := from + 1; i < to; i++ {
		if x := order(scores[i]); x < low {
			at, low = i, x
		}
	}
	return at
}

// span appends from..to-1.
func span(dst []int32, from, to int) []int32 {
	for i := from; i < to; i++ {
		dst = append(dst, int32(i))
	}
	return dst
}

// rest appends the indices of 0..n-1 that are not in keep (ascending).
func rest(dst, keep []int32, n int) []int32 {
	at := 0
	for i := range int32(n) {
		if at < len(keep) && keep[at] == i {
			at++
			continue
		}
		dst = append(dst, i)
	}
	return dst
}

// sized returns buf with length n, its memory reused where it is large enough; the content is arbitrary.
func sized[T any](buf []T, n int) []T { return slices.Grow(buf[:0], n)[:n] }

// heads returns rows of float32, one a KV head, each as long as the head's cache; memory is reused.
func heads(buf [][]float32, l *Layer) [][]float32 {
	for len(buf) < l.KVHeads {
		buf = append(buf, nil)
	}
	buf = buf[:l.KVHeads]
	for g := range buf {
		buf[g] = sized(buf[g], l.Tokens(g))
	}
	return buf
}
