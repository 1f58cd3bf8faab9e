package attention

import (
	"math"
	"math/bits"
	"sort"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// Attention to chosen tokens runs as if they were a view of their own: 16 of them in a row, wherever they lie, are a
// compact tile. Values are copied to such tiles; keys that lie token by token are turned into them; keys that lie in tiles
// are scored where they are and the scores moved together, which is the same, as a token's score depends on its key alone.
// Where the chosen tokens are whole tiles nothing moves. Invariant 4 follows.

// pick is the scratch of one task over chosen tokens.
type pick struct {
	keys, values []byte // compact tiles
	masks        []uint16
	rows         []*byte   // keys of the tokens
	valueRows    []*byte   // their values
	copied       []byte    // the keys, token by token
	tile         [][]byte  // the rows of one tile
	scores       []float32 // of the tiles that the chosen tokens lie in
}

// within is the range of the chosen tokens whose positions are in the span.
func (v *View) within(bases, chosen []int32, s span) (from, to int) {
	at := func(i int) int32 { return v.position(bases, chosen[i]) }
	to = len(chosen)
	if to > 0 && at(to-1) > s.high {
		to = sort.Search(to, func(i int) bool { return at(i) > s.high })
	}
	if s.low != math.MinInt32 {
		from = sort.Search(to, func(i int) bool { return at(i) >= s.low })
	}
	return from, to
}

// planChosen cuts the chosen tokens of a row and KV head into tasks of compact tiles.
func (w *workspace) planChosen(d *decodeGroup, kept int, keep bool) int {
	s := &w.seqs[d.seq]
	v, bases := &s.Views[d.g], w.basesOf(d.seq, d.g)
	d.selected, d.chosen = true, s.Select[d.g]
	d.low, d.high = v.within(bases, d.chosen, d.span)
	border := bases[len(v.Pages)]
	d.border = sort.Search(len(d.chosen), func(i int) bool { return d.chosen[i] >= border })
	var from, to [2]int
	tiles := 0
	for part := range 2 {
		if low, high := d.seen(part); low < high {
			from[part], to[part] = low/tileTokens, (high+tileTokens-1)/tileTokens
			tiles += to[part] - from[part]
		}
	}
	for part := range 2 {
		kept = w.cut(d, part, from[part], to[part], chunkTiles(tiles), kept, keep)
	}
	return kept
}

// ofPart are the chosen tokens of a part of the view.
func (d *decodeGroup) ofPart(part int) []int32 {
	if part == 0 {
		return d.chosen[:d.border]
	}
	return d.chosen[d.border:]
}

// seen is the range of ofPart that the row sees; low >= high where it is empty.
func (d *decodeGroup) seen(part int) (low, high int) {
	if part == 0 {
		return d.low, min(d.high, d.border)
	}
	return max(d.low-d.border, 0), d.high - d.border
}

// pickTiles lists what a task over chosen tokens reads.
func (w *workspace) pickTiles(k *worker, t *decodeTask, d *decodeGroup) {
	v := &w.seqs[d.seq].Views[d.g]
	p, bases := v.parts()[t.part], w.basesOf(d.seq, d.g)
	if t.part == 1 {
		bases = bases[len(v.Pages):]
	}
	chosen := d.ofPart(t.part)
	chosen = chosen[t.from*tileTokens : min(t.to*tileTokens, len(chosen))]
	l := &k.list
	k.pick.plan(t, d)
	if p.layout.TokenMajor && apart(chosen) {
		k.pick.pickApart(l, &p, bases, chosen)
		return
	}
	l.gather(&p, bases, chosen)
	if l.whole(k.pick.masks, len(chosen)) {
		l.masks = append(l.masks[:0], k.pick.masks...)
		l.turn(&k.pick, p.layout)
		return
	}
	k.pick.listRows(l, p.layout)
	k.pick.copyRows(l, p.layout)
	if p.layout.TokenMajor {
		k.pick.turnRows(l, p.layout)
	} else {
		l.spread = append(l.spread[:0], l.masks...)
	}
	l.masks = append(l.masks[:0], k.pick.masks...)
}

// plan fills the masks of a task's compact tiles.
func (c *pick) plan(t *decodeTask, d *decodeGroup) {
	low, high := d.seen(t.part)
	c.masks = c.masks[:0]
	for first := t.from * tileTokens; first < t.to*tileTokens; first += tileTokens {
		c.masks = append(c.masks, below(high-first)&^below(low-first))
	}
}

// below has the first n bits set.
func below(n int) uint16 { return uint16(1<<min(max(n, 0), tileTokens) - 1) }

// whole says that the listed tiles, with n chosen tokens, are compact as they lie.
func (l *list) whole(masks []uint16, n int) bool {
	if len(l.masks) != len(masks) {
		return false
	}
	for i, m := range l.masks {
		if m != below(n-i*tileTokens) {
			return false
		}
	}
	return true
}

// turn makes tiles of keys that lie token by token.
func (l *list) turn(c *pick, layout *kvpage.Layout) {
	if !layout.TokenMajor {
		return
	}
	size := layout.KTileBytes()
	c.keys = grow(c.keys, len(l.keys)*size)
	for i, tile := range l.keys {
		turned := c.keys[i*size : (i+1)*size : (i+1)*size]
		c.turnTile(layout, turned, tile)
		l.keys[i] = turned
	}
}

// turnTile writes a tile of keys [16][dim] as [dim][16].
func (c *pick) turnTile(layout *kvpage.Layout, dst, tile []byte) {
	n := len(tile) / tileTokens
	c.tile = c.tile[:0]
	for j := range tileTokens {
		c.tile = append(c.tile, tile[j*n:(j+1)*n])
	}
	kernels.TurnKeys(kernels.KVElem(layout.K), dst, c.tile, layout.KeyDim)
}

// listRows notes where the keys, if they lie token by token, and the values of the chosen tokens of listed tiles lie.
func (c *pick) listRows(l *list, layout *kvpage.Layout) {
	c.rows, c.valueRows = c.rows[:0], c.valueRows[:0]
	k, v := c.keyRowBytes(layout), layout.VRowBytes()
	for i, mask := range l.masks {
		keys, values := l.keys[i], l.values[i][:tileTokens*v]
		for ; mask != 0; mask &= mask - 1 {
			j := bits.TrailingZeros16(mask)
			c.rows, c.valueRows = append(c.rows, &keys[j*k]), append(c.valueRows, &values[j*v])
		}
	}
}

// keyRowBytes is the size of a key that lies in one piece; 0 where keys do not.
func (c *pick) keyRowBytes(layout *kvpage.Layout) int {
	if !layout.TokenMajor {
		return 0
	}
	return layout.KTileBytes() / tileTokens
}

// copyRows copies the keys, where they lie token by token, and the values of the chosen tokens.
func (c *pick) copyRows(l *list, layout *kvpage.Layout) {
	k, v := c.keyRowBytes(layout), layout.VRowBytes()
	c.values = grow(c.values, len(c.masks)*tileTokens*v)
	if k > 0 {
		c.copied = grow(c.copied, len(c.masks)*tileTokens*k)
		kernels.CopyRows(c.copied[:len(c.rows)*k], c.rows, k)
	}
	kernels.CopyRows(c.values[:len(c.rows)*v], c.valueRows, v)
	l.values = l.values[:0]
	for i := range c.masks {
		l.values = append(l.values, c.values[i*tileTokens*v:(i+1)*tileTokens*v:(i+1)*tileTokens*v])
	}
}

// turnRows makes compact tiles of the copied keys; what lies behind the last of them is turned too, and masked.
func (c *pick) turnRows(l *list, layout *kvpage.Layout) {
	l.keys = l.keys[:0]
	size := layout.KTileBytes()
	for i := range c.masks {
		l.keys = append(l.keys, c.copied[i*size:(i+1)*size])
	}
	l.turn(c, layout)
}

// score writes the scores of the listed tiles, compact where tokens were chosen: s [heads][16·len(masks)].
func (l *list) score(k *worker, s, q []float32, heads, dim int) {
	if len(l.spread) == 0 {
		var next [][]byte // floats: keys further on
		if l.elemK.Quantised() {
			next = l.values
		}
		kernels.ScoreTilesThen(l.elemK, s, q, l.keys, l.masks, heads, dim, next)
		return
	}
	width := tileTokens * len(l.spread)
	k.pick.scores = grow(k.pick.scores, heads*width)
	kernels.ScoreTiles(l.elemK, k.pick.scores, q, l.keys, l.spread, heads, dim)
	for h := range heads {
		from, to := k.pick.scores[h*width:(h+1)*width], s[h*tileTokens*len(l.masks):][:tileTokens*len(l.masks)]
		at := 0
		for i, mask := range l.spread {
			for ; mask != 0; mask &= mask - 1 {
				to[at] = from[i*tileTokens+bits.TrailingZeros16(mask)]
				at++
			}
		}
	}
	l.hideMasked(s)
}

// hideMasked gives the scores of masked tokens -Inf.
func (l *list) hideMasked(s []float32) {
	for t, mask := range l.masks {
		if mask == 0xffff {
			continue
		}
		for at := t * tileTokens; at < len(s); at += len(l.masks) * tileTokens {
			for j := range tileTokens {
				if mask>>j&1 == 0 {
					s[at+j] = float32(math.Inf(-1))
				}
			}
		}
	}
}

// addChosen adds the weights of a task over chosen tokens, [16·tiles] in compact order.
func (m *ColumnSums) addChosen(row, head, tokens int, weights []float32, t *decodeTask, d *decodeGroup) {
	chosen := d.ofPart(t.part)
	low, high := d.seen(t.part)
	for i := max(low, t.from*tileTokens); i < min(high, t.to*tileTokens); i++ {
		m.add(row, head, int(chosen[i]), tokens, weights[i-t.from*tileTokens:][:1], 1)
	}
}
