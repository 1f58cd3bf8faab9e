package attention

import "terrace/internal/kernels"

// Rows of one text in a step (guesses, the end of a prompt) read the same tiles. Where the kernels take more heads at once than a
// group has (kernels.MostHeads), the heads of all rows go through the tiles that all rows see whole, as many at a time as there is
// room for in registers. What they do not all see whole, the end of the text, each row takes by itself. A head's sums have the order
// that they have for a row alone, so a row's bits are the same (invariant 1).
const (
	unitHeads = 48 // rows times heads of a unit of more than two rows: the scores of a task stay in L2
	unitsEach = 4  // units a thread at least, if need be of fewer rows, so that threads end together
)

// rows is a worker's scratch for the rows of one unit.
type rows struct {
	q     []float32 // packed queries of the unit's turns, one after the other
	of, n int       // whose they are: the group of the first row, and how many rows
	tail  list      // those of one row that the rows do not all see whole
	spare int       // tokens of a tail at most
	s     []float32 // scores or weights of one row's tail
	tails []float32 // weights of all rows' tails, [rows·group][spare]
	row   []float32 // queries as they lie, and scores of one row and head
	soon  [][]byte  // tiles to ask memory for
}

// uniteRows puts neighbours in w.order that read the same tiles into units that run as one.
func (w *workspace) uniteRows(threads int) {
	most := max(2, min(unitHeads/w.group(), packedRows, len(w.order)/(unitsEach*threads)))
	w.units = append(w.units[:0], 0)
	for at := 0; at < len(w.order); {
		end := at + 1
		if w.shares(w.order[at]) {
			for end < len(w.order) && w.alike(w.order[at], w.order[end]) {
				end++
			}
		}
		for units := (end - at + most - 1) / most; units > 0; units-- {
			at += (end - at + units - 1) / units
			w.units = append(w.units, int32(at))
		}
	}
}

// unit is the tasks of the i-th unit.
func (w *workspace) unit(i int) []int32 { return w.order[w.units[i]:w.units[i+1]] }

// shares says that a task may be run with those of other rows.
func (w *workspace) shares(task int32) bool {
	t := &w.decode[task]
	d := &w.groups[t.group]
	l := w.seqs[d.seq].Views[d.g].parts()[t.part].layout
	most := min(kernels.MostHeads(kernels.KVElem(l.K)), kernels.MostHeads(kernels.KVElem(l.V)))
	return !d.selected && most > kernels.GroupHeads
}

// alike says that two tasks, of which the first shares, read the same tiles.
func (w *workspace) alike(a, b int32) bool {
	t, u := &w.decode[a], &w.decode[b]
	d, e := &w.groups[t.group], &w.groups[u.group]
	return !e.selected && d.seq == e.seq && d.g == e.g && t.part == u.part && t.from == u.from && t.to == u.to
}

// decodeRows computes the partial results of the tasks of unit i together; false if their rows do not all see the first tile whole.
func (w *workspace) decodeRows(k *worker, i int, tasks []int32) bool {
	if !w.listShared(k, i, tasks) {
		return false
	}
	r, group := &k.rows, w.group()
	heads := len(tasks) * group
	w.packRows(k, tasks)
	w.scoreRows(k, heads)
	r.tails = grow(r.tails, heads*r.spare)
	for j, at := range tasks {
		w.softmaxRow(k, int(at), j*group)
	}
	w.weighRows(k, i, heads)
	for j, at := range tasks {
		w.finishRow(k, int(at), j*group)
	}
	return true
}

// listShared lists the tiles that all rows of a unit see whole, from the first on, and says whether there are any.
func (w *workspace) listShared(k *worker, i int, tasks []int32) bool {
	t, l, r := &w.decode[tasks[0]], &k.list, &k.rows
	d := &w.groups[t.group]
	all := d.span
	for _, at := range tasks[1:] {
		s := w.groups[w.decode[at].group].span
		all = span{max(all.low, s.low), min(all.high, s.high)}
	}
	p := w.seqs[d.seq].Views[d.g].parts()[t.part]
	k.listed.seq = -1
	l.fill(&p, t.from, t.to, all)
	n := 0
	for n < len(l.masks) && l.masks[n] == 0xffff && int(l.tile[n]) == t.from+n {
		n++
	}
	l.keys, l.values, l.masks = l.keys[:n], l.values[:n], l.masks[:n]
	if k.near != i {
		fetchAll(l.keys)
	}
	l.turn(&k.pick, p.layout)
	r.spare = (t.to - t.from - n) * tileTokens
	return n > 0
}

// turns calls do for heads of a unit that the kernels take at once, as few turns as can be of about equal size.
func turns(heads int, e kernels.KVElem, do func(turn, of, first, n int)) {
	most := kernels.MostHeads(e)
	of := (heads + most - 1) / most
	for i := range of {
		first := heads * i / of
		do(i, of, first, heads*(i+1)/of-first)
	}
}

// next is what the kernels ask memory for in one of a phase's turns over tiles: so many of those wanted next that the turns ask for
// all, at an even pace; else the tile at hand.
func (r *rows) next(turn, of int, tiles, wanted [][]byte) [][]byte {
	if of == 1 {
		return wanted
	}
	r.soon = append(r.soon[:0], tiles...)
	for i := turn; i < min(len(tiles), len(wanted)); i += of {
		r.soon[i] = wanted[i]
	}
	return r.soon
}

// packRows packs the queries of a unit's rows, unless they are there.
func (w *workspace) packRows(k *worker, tasks []int32) {
	r, of := &k.rows, w.decode[tasks[0]].group
	if r.of == of && r.n == len(tasks) {
		return
	}
	r.of, r.n = of, len(tasks)
	dim, group := w.p.KeyDim, w.group()
	heads := len(tasks) * group
	r.q, r.row = grow(r.q, heads*dim), grow(r.row, heads*dim)
	for j, at := range tasks {
		d := &w.groups[w.decode[at].group]
		copy(r.row[j*group*dim:][:group*dim], w.seqs[d.seq].Q[(d.row*w.p.Heads+d.g*group)*dim:])
	}
	turns(heads, k.list.elemK, func(_, _, first, n int) {
		kernels.PackQuery(r.q[first*dim:], r.row[first*dim:], n, dim, w.p.Scale)
	})
}

// scoreRows writes the scores of a unit's heads with the shared tiles to the worker's s, [heads][16·tiles].
func (w *workspace) scoreRows(k *worker, heads int) {
	r, l, dim := &k.rows, &k.list, w.p.KeyDim
	tokens := tileTokens * len(l.masks)
	k.s = grow(k.s, heads*tokens)
	turns(heads, l.elemK, func(turn, of, first, n int) {
		s, q := k.s[first*tokens:][:n*tokens], r.q[first*dim:][:n*dim]
		kernels.ScoreTilesThen(l.elemK, s, q, l.keys, l.masks, n, dim, r.next(turn, of, l.keys, l.values))
	})
}

// weighRows adds up the values of the shared tiles for a unit's heads, in the worker's out, [heads][ValueDim].
func (w *workspace) weighRows(k *worker, i, heads int) {
	r, l, dim := &k.rows, &k.list, w.p.ValueDim
	tokens, wanted := tileTokens*len(l.masks), w.nextKeys(k, i)
	k.out = grow(k.out, heads*dim)
	clear(k.out)
	turns(heads, l.elemV, func(turn, of, first, n int) {
		out, s := k.out[first*dim:][:n*dim], k.s[first*tokens:][:n*tokens]
		kernels.WeighTilesThen(l.elemV, out, s, l.values, l.masks, n, dim, r.next(turn, of, l.values, wanted))
	})
}

// softmaxRow completes the scores of a task's row, whose first head is number h0 of the unit's, and makes them weights.
func (w *workspace) softmaxRow(k *worker, at, h0 int) {
	r, t, group := &k.rows, &w.decode[at], w.group()
	shared, rest := tileTokens*len(k.list.masks), w.scoreTail(k, at, h0)
	partial := w.partials[t.partial:][:w.partialLen()]
	for h := range group {
		row := k.s[(h0+h)*shared:][:shared]
		if w.p.Softcap > 0 {
			kernels.Softcap(row, w.p.Softcap)
		}
		if rest > 0 {
			r.row = append(append(r.row[:0], row...), r.tails[(h0+h)*r.spare:][:rest]...)
			row = r.row
		}
		partial[h] = kernels.Max(row)
		partial[group+h] = expSum(row, partial[h])
		if t.weights >= 0 {
			copy(w.weights[t.weights+h*len(row):], row)
		}
		if rest > 0 {
			copy(r.tails[(h0+h)*r.spare:], row[copy(k.s[(h0+h)*shared:][:shared], row):])
		}
	}
}

// scoreTail writes the scores of a task's tiles that are not shared to tails, and returns how many tokens those have.
func (w *workspace) scoreTail(k *worker, at, h0 int) int {
	r, t, group := &k.rows, &w.decode[at], w.group()
	rest := w.listTail(k, t)
	for h := 0; rest > 0 && h < group; h += kernels.GroupHeads {
		heads := min(kernels.GroupHeads, group-h)
		s := r.s[:heads*rest]
		r.tail.score(k, s, w.packedQuery(k, t, &w.groups[t.group], h, heads), heads, w.p.KeyDim)
		if w.p.Softcap > 0 {
			kernels.Softcap(s, w.p.Softcap)
			r.tail.hideMasked(s)
		}
		for i := range heads {
			copy(r.tails[(h0+h+i)*r.spare:], s[i*rest:][:rest])
		}
	}
	return rest
}

// listTail lists the tiles of a task that are not shared, with room for their scores, and returns how many tokens they have.
func (w *workspace) listTail(k *worker, t *decodeTask) int {
	r, d := &k.rows, &w.groups[t.group]
	if r.spare == 0 {
		return 0
	}
	p := w.seqs[d.seq].Views[d.g].parts()[t.part]
	r.tail.fill(&p, t.from+len(k.list.masks), t.to, d.span)
	r.tail.turn(&k.pick, p.layout)
	n := len(r.tail.masks) * tileTokens
	r.s = grow(r.s, kernels.GroupHeads*n)
	return n
}

// finishRow adds a row's tail to what its shared values came to, its partial result; the last task of a group merges.
func (w *workspace) finishRow(k *worker, at, h0 int) {
	r, t, group, dim := &k.rows, &w.decode[at], w.group(), w.p.ValueDim
	out := w.partials[t.partial:][w.statLen():w.partialLen()]
	copy(out, k.out[h0*dim:])
	rest := w.listTail(k, t)
	for h := 0; rest > 0 && h < group; h += kernels.GroupHeads {
		heads := min(kernels.GroupHeads, group-h)
		for i := range heads {
			copy(r.s[i*rest:][:rest], r.tails[(h0+h+i)*r.spare:])
		}
		kernels.WeighTiles(r.tail.elemV, out[h*dim:][:heads*dim], r.s[:heads*rest], r.tail.values, r.tail.masks, heads, dim)
	}
	if d := &w.groups[t.group]; d.left.last() {
		w.merge(k, d)
	}
}
