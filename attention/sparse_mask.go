package attention

import "slices"

// sparseMask says which tokens of a block of keys the rows of a task see under a mask, causality and window apart. What does
// not depend on the row is worked out once a block.
type sparseMask struct {
	m   *HeadMask
	sh  *sparseHead
	row int // of the block map

	whole   bool // every row sees every token
	run     bool // positions of all of the block follow each other
	tiles   [blockTiles]sparseTile
	columns [blockTokens / 64]uint64 // those of the tiles
	masks   []uint16                 // [subRows, blockTiles]
}

// sparseTile is one tile of the block.
type sparseTile struct {
	pos     []int32 // [tileTokens]
	run     bool    // its positions follow each other
	columns uint16  // tokens that are columns
	blocks  uint16  // tokens that lie in seen blocks of the map
}

// start looks at the block that a walk has come to.
func (s *sparseMask) start(b *blockWalk) {
	if s.whole = s.m.Dense; s.whole {
		return
	}
	s.whole, s.run, s.columns = s.m.Block > 0, true, [len(s.columns)]uint64{}
	for i := range s.tiles {
		t := &s.tiles[i]
		t.pos = b.k.pos[i*tileTokens:][:tileTokens]
		if s.m.Block > 0 {
			t.blocks = s.m.blockMask(t.pos, s.row)
			s.whole = s.whole && t.blocks == 0xffff
			continue
		}
		t.run = b.slots[i].mask == 0xffff && t.pos[tileTokens-1]-t.pos[0] == tileTokens-1
		if s.m.Rows != nil {
			continue
		}
		t.columns = 0
		for j, at := range t.pos {
			if bit(s.sh.columns, at) {
				t.columns |= 1 << j
			}
		}
		s.columns[i/4] |= uint64(t.columns) << (i % 4 * tileTokens)
		s.run = s.run && t.run && t.pos[0] == s.tiles[0].pos[0]+int32(i*tileTokens)
	}
}

// of gives the masks of some rows, blockTiles each.
func (s *sparseMask) of(rows []int32) []uint16 {
	s.masks = s.masks[:0]
	if s.m.Block > 0 {
		for range rows {
			for i := range s.tiles {
				s.masks = append(s.masks, s.tiles[i].blocks)
			}
		}
		return s.masks
	}
	if s.m.Rows != nil {
		for _, at := range rows {
			s.ofRow(s.m.Rows.Row(at))
		}
		return s.masks
	}
	gathered := len(s.sh.gathered.Pages) > 0
	for _, at := range rows {
		if s.run {
			s.ofRun(s.sh.last-at+s.tiles[0].pos[0], gathered)
			continue
		}
		for i := range s.tiles {
			t := &s.tiles[i]
			m := s.sh.onDiagonals(t, at)
			if gathered { // columns count where they are gathered
				m &^= t.columns
			} else {
				m |= t.columns
			}
			s.masks = append(s.masks, m)
		}
	}
	return s.masks
}

// ofRow appends the masks of a row by its bits.
func (s *sparseMask) ofRow(bits []uint64) {
	for i := range s.tiles {
		t := &s.tiles[i]
		if t.run {
			s.masks = append(s.masks, bits16(bits, t.pos[0]))
			continue
		}
		var m uint16
		for j, at := range t.pos {
			if bit(bits, at) {
				m |= 1 << j
			}
		}
		s.masks = append(s.masks, m)
	}
}

// ofRun appends the masks of a row for positions that follow each other, 64 at a time; first is the first one's place among
// the diagonals' bits.
func (s *sparseMask) ofRun(first int32, gathered bool) {
	for i, columns := range s.columns {
		m := bits64(s.sh.diagonals, first+int32(64*i))
		if gathered {
			m &^= columns
		} else {
			m |= columns
		}
		s.masks = append(s.masks, uint16(m), uint16(m>>16), uint16(m>>32), uint16(m>>48))
	}
}

// onDiagonals has the bits of a tile's tokens that lie on a diagonal of the query at a position.
func (sh *sparseHead) onDiagonals(t *sparseTile, at int32) uint16 {
	if t.run { // distances fall one by one
		return bits16(sh.diagonals, sh.last-at+t.pos[0])
	}
	var m uint16
	for j, k := range t.pos {
		if bit(sh.diagonals, sh.last-at+k) {
			m |= 1 << j
		}
	}
	return m
}

// blockMask has the bits of a tile's tokens that lie in the blocks of a row of the map; a tile that some row sees lies
// in one block unless there are holes.
func (m *HeadMask) blockMask(pos []int32, row int) uint16 {
	size := int32(m.Block)
	if pos[0]/size == pos[tileTokens-1]/size {
		return 0xffff
	}
	var bits uint16
	for j, at := range pos {
		if _, found := slices.BinarySearch(m.Cols[m.Start[row]:m.Start[row+1]], at/size); found {
			bits |= 1 << j
		}
	}
	return bits
}
