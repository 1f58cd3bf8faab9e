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
	n := 0
	for r := range m.Rows {
		q := m.FirstRow + r
		h := &m.Heads[head]
		switch {
		case h.Dense:
			n += q + 1
		case h.Block > 0:
			b := r / h.Block
			for _, c := range h.Cols[h.Start[b]:h.Start[b+1]] {
				n += max(min(q+1, (int(c)+1)*h.Block)-int(c)*h.Block, 0)
			}
		default:
			n += m.lines(h, q)
		}
	}
	return n
}

// lines counts the keys that one query sees through columns and diagonals, those on both once.
func (m *Mask) lines(h *HeadMask, query int) int {
	cols, _ := slices.BinarySearch(h.Vertical, int32(query)+1)
	diagonals, _ := slices.BinarySearch(h.Slash, int32(query)+1)
	n := cols + diagonals
	for _, s := range h.Slash[:diagonals] {
		if _, both := slices.BinarySearch(h.Vertical, int32(query)-s); both {
			n--
		}
	}
	return n
}
