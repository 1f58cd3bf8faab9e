package attention

import (
	"math"
	"math/bits"
	"sort"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// slot is one tile of a block.
type slot struct {
	layout *kvpage.Layout
	page   *Page
	in     int    // tile in the page
	tile   int32  // tile in the view
	mask   uint16 // tokens that exist, and are selected; 0 = the slot is unused
}

func (s *slot) keys() []byte { return s.layout.KTile(s.page.Data, s.in) }
func (s *slot) values() []byte {
	n := tileTokens * s.layout.VRowBytes()
	return s.page.Data[s.layout.ValuesAt()+s.in*n:][:n]
}
func (s *slot) pos() []int32 {
	return s.page.Pos[s.in*tileTokens : min(s.page.N, (s.in+1)*tileTokens)]
}

// blockWalk walks the blocks of keys that some rows of a task see.
type blockWalk struct {
	w      *workspace
	k      *worker
	v      *View
	rows   []int32 // positions of the task's rows, ascending
	listed bool    // walk k.slots instead of the view

	gapAt   int // tiles of the view up to the end of its first part's tokens
	gap     int // tiles without a token between them and its second part: not counted, so that blocks are the same for every page size
	at, end int // next tile and end of the tiles, of those that count
	first   int // first tile that a row sees: what its block has before it is not looked at, a tier may have its bytes
	number  int // of the block

	blockSlots
}

// blockSlots are the tokens of the block that the walk is at.
type blockSlots struct {
	slots     [blockTiles]slot
	low, high int32 // smallest and largest position in the block
	dead      bool  // some slots of the block hold no token
}

// begin finds the tiles to walk for rows at some positions.
func (b *blockWalk) begin(seq, g int, rows []int32) {
	s := &b.w.seqs[seq]
	b.v, b.rows = &s.Views[g], rows
	from, to := b.v.tileRange(span{b.w.p.sees(rows[0]).low, rows[len(rows)-1]})
	b.gapAt, b.gap = b.v.gap()
	if from >= b.gapAt {
		from -= b.gap
	}
	if to > b.gapAt {
		to -= b.gap
	}
	b.at, b.end, b.first = from/blockTiles*blockTiles, to, from
}

// gap is where the first part's last page has no more tokens, and how many tiles are left there before the second part.
func (v *View) gap() (at, tiles int) {
	per, n := v.Layout.Tiles(), len(v.Pages)
	if n == 0 || len(v.Recent) == 0 {
		return n * per, 0
	}
	tiles = per - (v.Pages[n-1].N+tileTokens-1)/tileTokens
	return n*per - tiles, tiles
}

// tile is the view's number of a tile that counts.
func (b *blockWalk) tile(i int) int {
	if i < b.gapAt {
		return i
	}
	return i + b.gap
}

// next takes the next block that some row sees; false at the end.
func (b *blockWalk) next() bool {
	for b.at < b.end {
		from := b.at
		b.at, b.number = from+blockTiles, from/blockTiles
		if b.take(from) {
			return true
		}
	}
	return false
}

// take fills the slots from tile (or selected tile) number from on, with their positions: an unused slot repeats the
// position before it, so that they ascend. It says whether any row sees any of it.
func (b *blockWalk) take(from int) bool {
	b.dead, b.low, b.high = false, math.MaxInt32, math.MinInt32
	last := int32(math.MinInt32)
	for i := range b.slots {
		s := &b.slots[i]
		switch {
		case !b.listed && from+i < b.first:
			*s = slot{}
		case !b.listed:
			*s = b.v.slot(b.tile(from + i))
		case from+i < len(b.k.slots):
			*s = b.k.slots[from+i]
		default:
			*s = slot{}
		}
		out := b.k.pos[i*tileTokens:][:tileTokens]
		var pos []int32
		if s.mask != 0 {
			pos = s.pos()
			b.low, b.high = min(b.low, pos[0]), max(b.high, pos[len(pos)-1])
		}
		b.dead = b.dead || s.mask != 0xffff
		for j := range out {
			if j < len(pos) {
				last = pos[j]
			}
			out[j] = last
		}
	}
	seen := span{b.w.p.sees(b.rows[0]).low, b.rows[len(b.rows)-1]}
	return b.high >= seen.low && b.low <= seen.high
}

// slot is the tile with a number; past the end, or without tokens, it is unused.
func (v *View) slot(tile int) slot {
	layout, pages := &v.Layout, v.Pages
	in := tile
	if n := len(pages) * layout.Tiles(); tile >= n {
		layout, pages, in = &v.RecentLayout, v.Recent, tile-n
	}
	per := layout.Tiles()
	if per == 0 || in/per >= len(pages) {
		return slot{}
	}
	s := slot{layout: layout, page: &pages[in/per], in: in % per, tile: int32(tile)}
	if n := min(tileTokens, s.page.N-s.in*tileTokens); n > 0 {
		s.mask = uint16(1<<n - 1)
	}
	return s
}

// packKeys converts the block's keys to panels.
func (b *blockWalk) packKeys() {
	dim, k := b.w.p.KeyDim, b.k
	for i := range b.slots {
		s := &b.slots[i]
		if s.mask == 0 {
			continue // its columns hold what they held; their scores are hidden
		}
		e, keys := kernels.KVElem(s.layout.K), s.keys()
		if s.layout.TokenMajor {
			turned := k.bytes[:len(keys)]
			k.pick.turnTile(s.layout, turned, keys)
			keys = turned
		}
		at := i / (kernels.PanelCols / tileTokens) * kernels.PanelCols * dim
		column := i % (kernels.PanelCols / tileTokens) * tileTokens
		if e.Quantised() {
			kernels.ExpandKeys(e, k.bytes, keys, dim)
			e, keys = kernels.KVF32, k.bytes
		}
		if b.w.bf16 {
			kernels.PackKeysBF16(e, k.key16[at+2*column:], keys, dim)
		} else {
			kernels.PackKeys(e, k.key[at+column:], keys, dim)
		}
	}
}

// packValues converts the block's values to panels; slots without a token become zeros.
func (b *blockWalk) packValues() {
	dim, k := b.w.p.ValueDim, b.k
	for i := range b.slots {
		s := &b.slots[i]
		e, values := kernels.KVF32, k.bytes[:4*tileTokens*dim]
		switch {
		case s.mask == 0:
			clear(values)
		case s.layout.V.Quantised():
			kernels.ExpandValues(kernels.KVElem(s.layout.V), values, s.values(), dim)
			clearDead(values, s.mask, 4*dim)
		case s.mask != 0xffff:
			e = kernels.KVElem(s.layout.V)
			values = values[:copy(values, s.values())]
			clearDead(values, s.mask, len(values)/tileTokens)
		default:
			e, values = kernels.KVElem(s.layout.V), s.values()
		}
		if b.w.bf16 {
			kernels.PackValuesBF16(e, k.value16[i*tileTokens*kernels.PanelCols:], values, dim, blockTokens*kernels.PanelCols)
		} else {
			kernels.PackValues(e, k.value[i*tileTokens*kernels.PanelCols:], values, dim, blockTokens*kernels.PanelCols)
		}
	}
}

func clearDead(values []byte, mask uint16, rowBytes int) {
	for j := range tileTokens {
		if mask>>j&1 == 0 {
			clear(values[j*rowBytes:][:rowBytes])
		}
	}
}

// scores computes q·k of some packed rows with the block, [rows][blockTokens], into the worker's s.
func (b *blockWalk) scores(row, rows int) {
	if b.w.bf16 {
		b.scores16(b.k.q16[row*b.w.p.KeyDim:], rows)
	} else {
		b.scores32(b.k.q[row*b.w.p.KeyDim:], rows)
	}
}

func (b *blockWalk) scores16(q []uint16, rows int) {
	k, dim := b.k, b.w.p.KeyDim
	for at := 0; at < blockTokens; at += kernels.PanelCols {
		kernels.GemmBF16(k.s[at:], blockTokens, q, dim, k.key16[at*dim:], dim, rows, nil)
	}
}

func (b *blockWalk) scores32(q []float32, rows int) {
	k, dim := b.k, b.w.p.KeyDim
	for at := 0; at < blockTokens; at += kernels.PanelCols {
		kernels.Gemm(k.s[at:], blockTokens, q, dim, k.key[at*dim:], dim, rows, nil)
	}
}

// cap applies the softcap and changes to the base of the softmax.
func (b *blockWalk) cap(rows int) {
	s := b.k.s[:rows*blockTokens]
	kernels.Softcap(s, b.w.p.Softcap)
	if !b.w.exact {
		kernels.Scale(s, log2e)
	}
}

// hide gives the scores of tokens that a row does not see -Inf; group scores in turn belong to each of the rows of the
// walk, and the first is number row of them all.
func (b *blockWalk) hide(row, rows, group int) {
	p := &b.w.p
	first, last := p.sees(b.rows[row/group]), p.sees(b.rows[(row+rows-1)/group])
	within := b.low >= last.low && b.high <= first.high
	if within && !b.dead {
		return
	}
	inf := float32(math.Inf(-1))
	for r := range rows {
		s := b.k.s[r*blockTokens:][:blockTokens]
		if !within {
			see := p.sees(b.rows[(row+r)/group])
			from := sort.Search(blockTokens, func(j int) bool { return b.k.pos[j] >= see.low })
			to := sort.Search(blockTokens, func(j int) bool { return b.k.pos[j] > see.high })
			fill(s[:from], inf)
			fill(s[max(from, to):], inf)
		}
		if b.dead {
			for i := range b.slots {
				b.slots[i].hideDead(s[i*tileTokens:][:tileTokens], inf)
			}
		}
	}
}

func (s *slot) hideDead(scores []float32, inf float32) {
	_ = scores[tileTokens-1]
	for hidden := ^s.mask; hidden != 0; hidden &= hidden - 1 {
		scores[bits.TrailingZeros16(hidden)] = inf
	}
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// weigh takes the scores of some rows into their softmax and adds the block's values; the weights and corrections of
// rows that count go to the last block that is kept.
func (b *blockWalk) weigh(row, rows int, counts bool) {
	k, width := b.k, b.w.outLen()
	s, m, l, corr, p16 := k.s[:rows*blockTokens], k.m[row:row+rows], k.l[row*tileTokens:(row+rows)*tileTokens], k.corr[:rows], k.p16
	if counts {
		corr = k.kept.factors[k.kept.at(row):][:rows]
	}
	switch {
	case !b.w.bf16:
		kernels.SoftmaxBlock(b.w.exact, s, m, l, corr)
		if counts {
			copy(k.kept.weights[k.kept.at(row)*blockTokens:], s)
		}
	case counts:
		p16 = k.kept.bf16[k.kept.at(row)*blockTokens:]
		fallthrough
	default:
		kernels.SoftmaxBlockBF16(s, p16, m, l, corr)
	}
	for panel := range b.w.panels() {
		out, at := k.out[row*width+panel*kernels.PanelCols:], panel*blockTokens*kernels.PanelCols
		if b.w.bf16 {
			kernels.GemmBF16(out, width, p16, blockTokens, k.value16[at:], blockTokens, rows, corr)
		} else {
			kernels.Gemm(out, width, s, blockTokens, k.value[at:], blockTokens, rows, corr)
		}
	}
}
