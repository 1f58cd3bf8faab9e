package tokenizer

// This file is the merge loop of byte-pair encoding (Sennrich et al. 2016) in
// the form GPT-2 uses: join the neighbouring pair of lowest rank, leftmost
// first, until no pair has a rank.

// shortWord is the number of symbols up to which the quadratic scan beats the
// heap: nearly all words of a text.
const shortWord = 24

// merger holds the scratch of one encoding; it is not safe for concurrent use.
type merger struct {
	ranks []uint32
	next  []int32
	prev  []int32
	heap  pairHeap
	step  func() // called for each merge of a long word
}

// merge joins syms in place and returns what remains. Negative symbols never
// merge.
func (m *merger) merge(pairs *pairTable, syms []int32) []int32 {
	if len(syms) <= shortWord {
		return m.mergeShort(pairs, syms)
	}
	return m.mergeLong(pairs, syms)
}

func (m *merger) mergeShort(pairs *pairTable, syms []int32) []int32 {
	ranks := m.ranks[:0]
	for i := 0; i+1 < len(syms); i++ {
		rank, _ := pairs.find(syms[i], syms[i+1])
		ranks = append(ranks, rank)
	}
	m.ranks = ranks
	for len(ranks) > 0 {
		best, at := ranks[0], 0
		for i, rank := range ranks {
			if rank < best {
				best, at = rank, i
			}
		}
		if best == noRank {
			break
		}
		_, syms[at] = pairs.find(syms[at], syms[at+1])
		syms = append(syms[:at+1], syms[at+2:]...)
		ranks = append(ranks[:at], ranks[at+1:]...)
		if at > 0 {
			ranks[at-1], _ = pairs.find(syms[at-1], syms[at])
		}
		if at < len(ranks) {
			ranks[at], _ = pairs.find(syms[at], syms[at+1])
		}
	}
	return syms
}

// mergeLong takes n log n steps whatever the symbols are.
func (m *merger) mergeLong(pairs *pairTable, syms []int32) []int32 {
	m.link(len(syms))
	m.heap = m.heap[:0]
	for i := 0; i+1 < len(syms); i++ {
		if rank, _ := pairs.find(syms[i], syms[i+1]); rank != noRank {
			m.heap = append(m.heap, pairAt{uint64(rank)<<32 | uint64(i), syms[i], syms[i+1]})
		}
	}
	m.heap.init()
	push := func(at int32) {
		if at < 0 || m.next[at] < 0 {
			return
		}
		l, r := syms[at], syms[m.next[at]]
		if rank, _ := pairs.find(l, r); rank != noRank {
			m.heap.push(pairAt{uint64(rank)<<32 | uint64(at), l, r})
		}
	}
	for len(m.heap) > 0 {
		m.step()
		top := m.heap.pop()
		at := int32(uint32(top.order))
		right := m.next[at]
		if right < 0 || syms[at] != top.left || syms[right] != top.right {
			continue // one of the two was merged meanwhile
		}
		_, syms[at] = pairs.find(top.left, top.right)
		m.unlink(at, right)
		syms[right] = deadSymbol
		push(m.prev[at])
		push(at)
	}
	out := syms[:0]
	for i := int32(0); i >= 0; i = m.next[i] {
		out = append(out, syms[i])
	}
	return out
}

// deadSymbol marks a position whose symbol was merged into its left
// neighbour; missing symbols are -1, so that the two never meet.
const deadSymbol = -2

func (m *merger) link(n int) {
	m.next, m.prev = m.next[:0], m.prev[:0]
	for i := range int32(n) {
		m.next = append(m.next, i+1)
		m.prev = append(m.prev, i-1)
	}
	m.next[n-1] = -1
}

func (m *merger) unlink(at, right int32) {
	after := m.next[right]
	m.next[at] = after
	if after >= 0 {
		m.prev[after] = at
	}
}

// pairAt is a candidate merge: order sorts by rank, then position.
type pairAt struct {
	order       uint64
	left, right int32
}

// pairHeap is a min-heap by order with four children a node (half the depth of
// a binary one, and siblings share a cache line), without the interface calls
// of container/heap.
type pairHeap []pairAt

func (h pairHeap) init() {
	for i := (len(h) - 2) / 4; i >= 0; i-- {
		h.down(i)
	}
}

func (h *pairHeap) push(p pairAt) {
	*h = append(*h, p)
	s := *h
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 4
		if s[up].order <= p.order {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = p
}

func (h *pairHeap) pop() pairAt {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	if last > 1 {
		(*h).down(0)
	}
	return top
}

func (h pairHeap) down(i int) {
	if len(h) == 0 {
		return
	}
	p := h[i]
	for {
		child := 4*i + 1
		if child >= len(h) {
			break
		}
		for c := child + 1; c < min(4*i+5, len(h)); c++ {
			if h[c].order < h[child].order {
				child = c
			}
		}
		if p.order <= h[child].order {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = p
}
