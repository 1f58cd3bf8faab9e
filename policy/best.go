package policy

import (
	"math"
	"slices"
)

// picker chooses the best of a list of scores: a radix select on the bits of the scores, linear and without a sort, so that
// indices come out ascending by themselves. Of long lists a sample guesses a bound first, and only the scores that reach it
// are looked at twice; the outcome is the same. Equal scores are decided by the lowest index; NaN is below everything. The
// zero value is ready; a picker keeps its scratch and allocates nothing once it has grown.
type picker struct {
	keys   []uint32
	index  []int32  // of the shortlist
	middle []uint32 // keys that share their first bits with the cut
	counts [2048]int32
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
	if n >= 4*samples && k <= n/3 && p.shortlist(scores, k) {
		return p.fromShortlist(dst, k, base)
	}
	p.keys = sized(p.keys, n)
	for i, s := range scores {
		p.keys[i] = order(s)
	}
	cut, atCut, ties := p.cut(p.keys, k)
	if ties > atCut {
		return p.firstTies(dst, cut, atCut, base)
	}
	at := len(dst)
	dst = slices.Grow(dst, k+1)[:at+k+1]
	for i, key := range p.keys {
		dst[at] = base + int32(i)
		if key >= cut {
			at++
		}
	}
	return dst[:at]
}

// samples is how many scores are looked at to guess a bound that somewhat more than k scores reach.
const samples = 512

// shortlist gathers the keys and indices of all scores that reach a guessed bound; false where fewer than k do.
func (p *picker) shortlist(scores []float32, k int) bool {
	n := len(scores)
	stride := n / samples
	p.keys = sized(p.keys, samples)
	for i := range p.keys {
		p.keys[i] = order(scores[i*stride+i%stride])
	}
	// Of the samples, k/n·samples are expected above the cut; the margin is four standard deviations.
	expected := float64(k) / float64(n) * samples
	want := int(expected + 4*math.Sqrt(expected) + 4)
	if want >= samples {
		return false
	}
	bound, _, _ := p.cut(p.keys, want)
	if bound == order(0) {
		bound-- // -0, which the loop below does not map to 0
	}
	p.index = sized(p.index, n+1)
	at := 0
	index := p.index[:n+1]
	for i, s := range scores {
		index[at] = int32(i)
		b := math.Float32bits(s)
		if b^(uint32(int32(b)>>31)|1<<31) >= bound {
			at++
		}
	}
	p.index, p.keys = index[:at], sized(p.keys, at)
	numbers := 0
	for j, i := range p.index {
		p.keys[j] = order(scores[i])
		if p.keys[j] >= bound { // NaN is not
			numbers++
		}
	}
	return numbers >= k
}

// fromShortlist appends the best k of the shortlist.
func (p *picker) fromShortlist(dst []int32, k int, base int32) []int32 {
	if len(p.keys) == k {
		for _, i := range p.index {
			dst = append(dst, base+i)
		}
		return dst
	}
	cut, atCut, _ := p.cut(p.keys, k)
	for j, key := range p.keys {
		if key > cut {
			dst = append(dst, base+p.index[j])
		} else if key == cut && atCut > 0 {
			dst = append(dst, base+p.index[j])
			atCut--
		}
	}
	return dst
}

// firstTies appends the indices above the cut and the first atCut of those at it.
func (p *picker) firstTies(dst []int32, cut uint32, atCut int, base int32) []int32 {
	for i, key := range p.keys {
		if key > cut {
			dst = append(dst, base+int32(i))
		} else if key == cut && atCut > 0 {
			dst = append(dst, base+int32(i))
			atCut--
		}
	}
	return dst
}

// cut finds the k-th best key (0 < k < len), how many with exactly that key are among the best k, and how many there are.
func (p *picker) cut(keys []uint32, k int) (key uint32, atCut, ties int) {
	p.counts = [2048]int32{}
	for _, x := range keys {
		p.counts[x>>21]++
	}
	high, k := p.descend(2047, k)
	p.middle = sized(p.middle, int(p.counts[high])+1)
	at := 0
	for _, x := range keys {
		p.middle[at] = x
		if x>>21 == high {
			at++
		}
	}
	p.middle = p.middle[:at]
	p.counts = [2048]int32{}
	for _, x := range p.middle {
		p.counts[x>>10&2047]++
	}
	middle, k := p.descend(2047, k)
	prefix := high<<11 | middle
	p.counts = [2048]int32{}
	for _, x := range p.middle {
		if x>>10 == prefix {
			p.counts[x&1023]++
		}
	}
	low, k := p.descend(1023, k)
	return prefix<<10 | low, k, int(p.counts[low])
}

// descend walks the counts from the top bucket until k members are passed: the bucket that holds the k-th best, and how
// many of it are needed.
func (p *picker) descend(top int, k int) (bucket uint32, left int) {
	for b := top; ; b-- {
		c := int(p.counts[b])
		if c >= k {
			return uint32(b), k
		}
		k -= c
	}
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
