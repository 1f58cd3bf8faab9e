package policy

import (
	"math"
	"slices"
)

// picker chooses the best of a list of scores: a radix select on the bits of the scores, three linear scans at most and
// no sort, so that indices come out ascending by themselves. Equal scores are decided by the lowest index; NaN is below
// everything. The zero value is ready; a picker keeps its scratch and allocates nothing once it has grown.
type picker struct {
	keys   []uint32
	counts [2048]int32
}

// order maps float32 to uint32 so that a < b exactly if order(a) < order(b); -0 equals 0, NaN is lowest.
func order(f float32) uint32 {
	if f != f {
		return 0
	}
	b := math.Float32bits(f + 0)
	if b&(1<<31) != 0 {
		return ^b
	}
	return b | 1<<31
}

// best appends to dst the indices, plus base, of the k highest scores, ascending.
func (p *picker) best(dst []int32, scores []float32, k int, base int32) []int32 {
	n := len(scores)
	if k >= n {
		for i := range int32(n) {
			dst = append(dst, base+i)
		}
		return dst
	}
	if k <= 0 {
		return dst
	}
	cut, atCut := p.cut(scores, k)
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

// cut fills p.keys and finds the key of the k-th best score (0 < k < len), and how many with exactly that key are among
// the best k.
func (p *picker) cut(scores []float32, k int) (key uint32, atCut int) {
	p.keys = slices.Grow(p.keys[:0], len(scores))[:len(scores)]
	p.counts = [2048]int32{}
	for i, s := range scores {
		x := order(s)
		p.keys[i] = x
		p.counts[x>>21]++
	}
	high, k := p.descend(2047, k)
	p.counts = [2048]int32{}
	for _, x := range p.keys {
		if x>>21 == high {
			p.counts[x>>10&2047]++
		}
	}
	middle, k := p.descend(2047, k)
	prefix := high<<11 | middle
	p.counts = [2048]int32{}
	for _, x := range p.keys {
		if x>>10 == prefix {
			p.counts[x&1023]++
		}
	}
	low, k := p.descend(1023, k)
	return prefix<<10 | low, k
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
