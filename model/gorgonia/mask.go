package gorgonia

import (
	"slices"

	"terrace/attention"
)

// visible reports whether the query in a row of the call, for a head, sees a key: causality, window and prefill mask.
func visible(p *attention.Params, s *attention.Seq, head, row int, key int32) bool {
	d := s.Pos[row] - key
	if d < 0 || p.Window > 0 && int(d) >= p.Window {
		return false
	}
	if s.Sparse == nil {
		return true
	}
	m := &s.Sparse.Heads[head]
	switch {
	case m.Dense:
		return true
	case m.Block > 0:
		b := row / m.Block
		_, ok := slices.BinarySearch(m.Cols[m.Start[b]:m.Start[b+1]], key/int32(m.Block))
		return ok
	}
	_, column := slices.BinarySearch(m.Vertical, key)
	_, diagonal := slices.BinarySearch(m.Slash, d)
	return column || diagonal
}
