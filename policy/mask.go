package policy

import "slices"

// Mask is the part of one layer's prefill attention that is computed, for the queries of one chunk.
type Mask struct {
	FirstRow int // position of the chunk's first query
	Rows     int
	Keys     int // keys up to and with the chunk: positions 0..Keys-1
	Heads    []HeadMask
}

// HeadMask is one query head's part: everything, columns and diagonals, or blocks. Causality always holds on top of it.
type HeadMask struct {
	Dense bool
	// Vertical lists key positions that every later query sees; Slash lists distances (query position - key position)
	// that are computed. Both ascend.
	Vertical, Slash []int32
	// Block, if not 0, is the size in tokens of the squares of a block map: Cols[Start[b]:Start[b+1]] are the key blocks
	// (by position / Block, ascending) that query block b (rows b·Block.. of the chunk) sees.
	Block int
	Start []int32
	Cols  []int32
}

// Reset prepares the mask for a number of heads, all dense, and keeps the memory.
func (m *Mask) Reset(l *Layer) {
	m.Keys, m.Rows, m.FirstRow = l.N, l.Rows, l.N-l.Rows
	for len(m.Heads) < l.Heads {
		m.Heads = append(m.Heads, HeadMask{})
	}
	m.Heads = m.Heads[:l.Heads]
	for i := range m.Heads {
		h := &m.Heads[i]
		h.Dense, h.Block = true, 0
		h.Vertical, h.Slash, h.Start, h.Cols = h.Vertical[:0], h.Slash[:0], h.Start[:0], h.Cols[:0]
	}
}

// Sees reports whether a query position sees a key position: the meaning of the mask, one pair at a time.
func (m *Mask) Sees(head, query, key int) bool {
	h := &m.Heads[head]
	switch {
	case key > query:
		return false
	case h.Dense:
		return true
	case h.Block > 0:
		b := (query - m.FirstRow) / h.Block
		_, found := slices.BinarySearch(h.Cols[h.Start[b]:h.Start[b+1]], int32(key/h.Block))
		return found
	}
	if _, found := slices.BinarySearch(h.Vertical, int32(key)); found {
		return true
	}
	_, found := slices.BinarySearch(h.Slash, int32(query-key))
	return found
}

// Pairs counts the query-key pairs that a head computes: the work that is left of Rows·(FirstRow + (Rows+1)/2).
func (m *Mask) Pairs(head int) int {
	h := &m.Heads[head]
	first, end := m.FirstRow, m.FirstRow+m.Rows
	switch {
	case h.Dense:
		return m.Rows*first + m.Rows*(m.Rows+1)/2
	case h.Block > 0:
		return m.blockPairs(h)
	}
	n := 0
	for _, lines := range [][]int32{h.Vertical, h.Slash} { // a column or diagonal x meets the queries from position x on
		for _, x := range lines {
			n += max(end-max(int(x), first), 0)
		}
	}
	return n - crossings(h, end) + crossings(h, first)
}

// blockPairs counts what a block map leaves.
func (m *Mask) blockPairs(h *HeadMask) int {
	n := 0
	for b := range len(h.Start) - 1 {
		rows := min(h.Block, m.Rows-b*h.Block)
		q := m.FirstRow + b*h.Block // first query of the block
		for _, c := range h.Cols[h.Start[b]:h.Start[b+1]] {
			k := int(c) * h.Block
			switch {
			case k+h.Block <= q+1:
				n += rows * h.Block
			default:
				for r := range rows {
					n += max(min(q+r+1-k, h.Block), 0)
				}
			}
		}
	}
	return n
}

// crossings counts the pairs of a column and a diagonal that meet at a query before end: key c, distance s, query c+s.
func crossings(h *HeadMask, end int) int {
	n, s := 0, len(h.Slash)
	for _, c := range h.Vertical {
		for s > 0 && int(c)+int(h.Slash[s-1]) >= end {
			s--
		}
		n += s
	}
	return n
}

// Unit is the least number of tokens, at least 1, that is a multiple of every head's blocks.
func (m *Mask) Unit() int {
	unit := 1
	for h := range m.Heads {
		if b := m.Heads[h].Block; b > 0 {
			x, y := unit, b
			for y > 0 {
				x, y = y, x%y
			}
			unit = unit / x * b
		}
	}
	return unit
}
