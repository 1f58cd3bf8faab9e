package attention

import (
	"fmt"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// Sparse is a prefill mask: the part of a sequence's attention that is computed, on top of causality and the window.
// Work falls with it: tiles of 16 keys that no row of a block of sparseRows rows sees are not computed, and single
// columns are gathered so that they cost what as many dense keys do. Keys are named by position.
type Sparse struct {
	Heads []HeadMask // [Heads]
}

// HeadMask is one query head's part: everything, columns and diagonals, blocks, or what each row names.
type HeadMask struct {
	Dense bool
	// Vertical lists key positions that every later query sees; Slash lists distances (query position - key position)
	// that are computed. Both ascend.
	Vertical, Slash []int32
	// Block, if not 0, is the size in tokens, a multiple of 16, of the squares of a block map: Cols[Start[b]:Start[b+1]]
	// are the key blocks (by position / Block, ascending) that query block b (rows b·Block.. of the call) sees.
	Block int
	Start []int32
	Cols  []int32
	// Rows, if not nil, says for each row of the call by itself which keys it sees.
	Rows *RowMask
}

// RowMask is what rows at positions First, First+1, … see: bit p of row i, which is Words words long, says that it sees the key at position p.
type RowMask struct {
	First int32
	Words int
	Bits  []uint64 // [rows, Words]; the last word of each row is empty
}

// Row is the row of a query at a position.
func (m *RowMask) Row(at int32) []uint64 {
	i := int(at-m.First) * m.Words
	return m.Bits[i : i+m.Words]
}

// sees reports whether some of the rows see a key at positions [a, z].
func (m *RowMask) sees(a, z int32, rows []int32) bool {
	for _, at := range rows {
		if anyBit(m.Row(at), a, z) {
			return true
		}
	}
	return false
}

const sparseRows = 64

// sparseTask is a block of rows of one head.
type sparseTask struct{ seq, head, from, to int }

// sparseHead is what a head's rows share: bitmaps of its columns and diagonals, and the gathered columns.
type sparseHead struct {
	seq, head int
	diagonals []uint64 // bit of last-distance, so that 16 keys in a row are 16 bits in a row; the last word is empty
	columns   []uint64 // bit of each position
	last      int32    // largest distance
	gathered  View     // the columns' keys and values, bit for bit
}

func bit(b []uint64, i int32) bool { return i >= 0 && int(i) < 64*len(b) && b[i/64]>>(i%64)&1 != 0 }

func setBit(b []uint64, i int32) {
	if i >= 0 && int(i) < 64*len(b) {
		b[i/64] |= 1 << (i % 64)
	}
}

// bits16 are bits [i, i+16) of a bitmap that ends in an empty word; i is not negative.
func bits16(b []uint64, i int32) uint16 {
	at, shift := uint32(i)/64, uint32(i)%64
	if int(at)+1 >= len(b) {
		return 0
	}
	return uint16(b[at]>>shift | b[at+1]<<(64-shift))
}

// bits64 are bits [i, i+64) of a bitmap, those behind its end clear; i is not negative.
func bits64(b []uint64, i int32) uint64 {
	at, shift := uint32(i)/64, uint32(i)%64
	if int(at) >= len(b) {
		return 0
	}
	x := b[at] >> shift
	if int(at)+1 < len(b) {
		x |= b[at+1] << (64 - shift)
	}
	return x
}

// planSparse lists the tasks of the sequences with a mask.
func (w *workspace) planSparse() {
	w.sparse, w.sparseHeads = w.sparse[:0], w.sparseHeads[:0]
	for i := range w.seqs {
		s := &w.seqs[i]
		if s.Sparse == nil {
			continue
		}
		if len(s.Sparse.Heads) != w.p.Heads || s.ColumnSums != nil || s.Select != nil {
			panic(fmt.Sprintf("attention: mask of %d heads, want %d, without ColumnSums and Select", len(s.Sparse.Heads), w.p.Heads))
		}
		for h := range s.Sparse.Heads {
			m := &s.Sparse.Heads[h]
			if m.Block%tileTokens != 0 || m.Block > 0 && (len(m.Start)-1)*m.Block < len(s.Pos) {
				panic(fmt.Sprintf("attention: block map of %d rows of %d for %d rows", len(m.Start)-1, m.Block, len(s.Pos)))
			}
			w.sparseHeads = append(w.sparseHeads, sparseHead{seq: i, head: h})
			rows := sparseRows
			if m.Block > 0 {
				rows = min(rows, m.Block)
				for m.Block%rows != 0 { // a task's rows share a row of the map
					rows -= tileTokens
				}
			}
			for from := 0; from < len(s.Pos); from += rows {
				w.sparse = append(w.sparse, sparseTask{len(w.sparseHeads) - 1, h, from, min(from+rows, len(s.Pos))})
			}
		}
	}
}

// prepare makes the bitmaps of one head and gathers its columns.
func (w *workspace) prepareSparse(_, i int) {
	sh := &w.sparseHeads[i]
	s := &w.seqs[sh.seq]
	m := &s.Sparse.Heads[sh.head]
	if m.Dense || m.Block > 0 || m.Rows != nil || len(s.Pos) == 0 {
		return
	}
	v := &s.Views[sh.head/w.group()]
	sh.last = s.Pos[len(s.Pos)-1]
	sh.diagonals, sh.columns = make([]uint64, sh.last/64+2), make([]uint64, sh.last/64+1)
	for _, d := range m.Slash {
		if d <= sh.last {
			setBit(sh.diagonals, sh.last-d)
		}
	}
	for _, at := range m.Vertical {
		setBit(sh.columns, at)
	}
	if !v.Layout.K.Quantised() && len(v.Recent) == 0 {
		sh.gather(v)
	}
}

// gather copies the columns' tokens to pages of their own.
func (sh *sparseHead) gather(v *View) {
	sh.gathered = View{Layout: v.Layout}
	l := &sh.gathered.Layout
	l.Tokens = tileTokens
	for i := range v.Pages {
		p := &v.Pages[i]
		for slot, at := range p.Pos[:p.N] {
			if bit(sh.columns, at) {
				sh.take(v.Layout, p, slot, at)
			}
		}
	}
}

func (sh *sparseHead) take(from kvpage.Layout, p *Page, slot int, at int32) {
	l, pages := sh.gathered.Layout, sh.gathered.Pages
	if n := len(pages); n == 0 || pages[n-1].N == tileTokens {
		pages = append(pages, Page{Data: make([]byte, l.PageBytes()), Pos: make([]int32, 0, tileTokens)})
	}
	to := &pages[len(pages)-1]
	l.MoveFrom(to.Data, to.N, from, p.Data, slot)
	to.Pos, to.N = append(to.Pos, at), to.N+1
	sh.gathered.Pages = pages
}

// sparseBlock computes the rows of one task: gathered columns first, then the tiles that diagonals or blocks touch.
func (w *workspace) sparseBlock(worker, i int) {
	t, k := w.sparse[i], &w.workers[worker]
	sh := &w.sparseHeads[t.seq]
	s := &w.seqs[sh.seq]
	rows := s.Pos[t.from:t.to]
	k.startHead(w, s, t)
	b := &k.walk
	*b = blockWalk{w: w, k: k, rows: rows, listed: true}
	m := &s.Sparse.Heads[t.head]
	if g := &sh.gathered; len(g.Pages) > 0 {
		b.v, k.slots = g, k.slots[:0]
		for tile := range g.tileCount() {
			k.slots = append(k.slots, g.slot(tile))
		}
		k.mask.m, k.mask.sh = &HeadMask{Dense: true}, sh
		w.sparseWalk(b)
	}
	b.v = &s.Views[t.head/w.group()]
	k.slots = b.v.touched(k.slots[:0], m, sh, rows, t.from, w.p.sees(rows[0]).low)
	k.mask.m, k.mask.sh = m, sh
	if m.Block > 0 {
		k.mask.row = t.from / m.Block
	}
	w.sparseWalk(b)
	w.finishHead(s, t, k)
}

// sparseWalk attends to the worker's slots under its mask.
func (w *workspace) sparseWalk(b *blockWalk) {
	mask := &b.k.mask
	for b.at, b.end = 0, len(b.k.slots); b.next(); {
		b.packKeys()
		b.packValues()
		mask.start(b)
		for r := 0; r < len(b.rows); r += w.subRows {
			n := min(w.subRows, len(b.rows)-r)
			b.scores(r, n)
			if w.p.Softcap > 0 {
				b.cap(n)
			}
			b.hide(r, n, 1)
			if !mask.whole {
				kernels.Hide(b.k.s[:n*blockTokens], mask.of(b.rows[r:r+n]))
			}
			b.weigh(r, n, false)
		}
	}
}

// touched lists the tiles of the view that some row of a task sees through blocks, diagonals or columns not gathered.
func (v *View) touched(dst []slot, m *HeadMask, sh *sparseHead, rows []int32, firstRow int, low int32) []slot {
	from, to := v.tileRange(span{low, rows[len(rows)-1]})
	if m.Rows != nil {
		return v.touchedByRows(dst, m.Rows, rows, to)
	}
	cols := []int32(nil)
	if m.Block > 0 {
		cols = m.Cols[m.Start[firstRow/m.Block]:m.Start[firstRow/m.Block+1]]
	}
	for tile := from; tile < to; tile++ {
		s := v.slot(tile)
		if s.mask == 0 {
			continue
		}
		pos := s.pos()
		a, z := pos[0], pos[len(pos)-1]
		switch {
		case m.Dense:
		case m.Block > 0:
			for len(cols) > 0 && (int(cols[0])+1)*m.Block <= int(a) {
				cols = cols[1:]
			}
			if len(cols) == 0 || int(cols[0])*m.Block > int(z) {
				continue
			}
		case !sh.touches(a, z, rows):
			continue
		}
		dst = append(dst, s)
	}
	return dst
}

// touchedByRows is touched under a mask of rows: whole blocks of tiles as a dense walk has them, so that what a row adds up, and in which
// order, does not depend on the other rows.
func (v *View) touchedByRows(dst []slot, m *RowMask, rows []int32, to int) []slot {
	begun := len(dst)
	leave := func() {
		if block := dst[begun:]; len(block) > 0 {
			last := block[len(block)-1].pos()
			if !m.sees(block[0].pos()[0], last[len(last)-1], rows) {
				dst = dst[:begun]
			}
		}
		begun = len(dst)
	}
	for tile := range to {
		s := v.slot(tile)
		if s.mask == 0 {
			continue
		}
		if dst = append(dst, s); len(dst)-begun == blockTiles {
			leave()
		}
	}
	leave()
	return dst
}

// touches says whether a diagonal crosses keys at positions [a, z] for one of the rows, or a column not gathered lies
// there: bits [last-rows_last+a, last-rows_first+z] of the diagonals.
func (sh *sparseHead) touches(a, z int32, rows []int32) bool {
	if anyBit(sh.diagonals, sh.last-rows[len(rows)-1]+a, sh.last-rows[0]+z) {
		return true
	}
	return len(sh.gathered.Pages) == 0 && anyBit(sh.columns, a, z)
}

func anyBit(b []uint64, from, to int32) bool {
	for from = max(from, 0); from <= to && int(from) < 64*len(b); {
		x := b[from/64] >> (from % 64)
		if left := to - from; left < 63 {
			x &= 1<<(left+1) - 1
		}
		if x != 0 {
			return true
		}
		from = (from/64 + 1) * 64
	}
	return false
}

// startHead packs the queries of a task's one head and clears its sums.
func (k *worker) startHead(w *workspace, s *Seq, t sparseTask) {
	dim, n := w.p.KeyDim, t.to-t.from
	for r := range n {
		w.packQuery(k, r, s.Q[((t.from+r)*w.p.Heads+t.head)*dim:][:dim])
	}
	clear(k.out[:n*w.outLen()])
	clear(k.l[:n*tileTokens])
	for r := range n {
		k.m[r] = lowest
		if w.p.Sinks != nil {
			k.m[r] = w.toBase(w.p.Sinks[t.head])
			k.l[r*tileTokens] = 1
		}
	}
}

// finishHead divides by the sums and writes Out.
func (w *workspace) finishHead(s *Seq, t sparseTask, k *worker) {
	dim := w.p.ValueDim
	for r := range t.to - t.from {
		out := s.Out[((t.from+r)*w.p.Heads+t.head)*dim:][:dim]
		var sum float64
		for _, x := range k.l[r*tileTokens:][:tileTokens] {
			sum += float64(x)
		}
		copy(out, k.out[r*w.outLen():])
		if sum == 0 {
			clear(out)
		} else {
			kernels.Scale(out, float32(1/sum))
		}
	}
}
