package attention

import (
	"math"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// decodeTask is a range of tiles, or of compact tiles of chosen tokens, in one part of the view of one row and KV head.
type decodeTask struct {
	group, part int
	from, to    int
	partial     int // offset in partials
	weights     int // offset in weights, -1 where ColumnSums is not wanted
}

// decodeGroup is the work of one row and KV head.
type decodeGroup struct {
	seq, row, g  int
	span         span
	selected     bool
	chosen       []int32 // the tokens selected
	border       int     // the first of them in the view's second part
	low, high    int     // the range of them that the row sees
	first, count int     // its tasks
	left         countdown
}

// maxChunk is the largest task in tiles.
const maxChunk = 32

// chunkTiles is the size of a task in tiles. It depends on the number of tiles alone (invariant 1): small enough that
// threads share one sequence's only KV head, large enough that merging costs little.
func chunkTiles(tiles int) int {
	switch {
	case tiles <= 128:
		return 8
	case tiles <= 512:
		return 16
	}
	return maxChunk
}

// fetchTiles of a task's values are asked for before its keys are scored; later ones by the kernel, as it goes.
const fetchTiles = 3

// packedRows of a sequence keep their packed queries while a worker goes from row to row.
const packedRows = 16

// decodeClaims a thread even out the end of a step.
const decodeClaims = 6

func (w *workspace) attendDecode(pool *kernels.Pool) {
	w.decode, w.groups, w.used = w.decode[:0], w.groups[:0], 0
	kept := 0
	for i := range w.seqs {
		s := &w.seqs[i]
		for r, at := range s.Pos {
			for g := range s.Views {
				w.groups = append(w.groups, decodeGroup{})
				d := &w.groups[len(w.groups)-1]
				d.seq, d.row, d.g, d.span, d.first = i, r, g, w.p.sees(at), len(w.decode)
				kept = w.plan(d, kept, s.ColumnSums != nil && r >= s.ColumnSums.FromRow)
			}
		}
	}
	w.partials = grow(w.partials, w.used)
	w.weights = grow(w.weights, kept)
	for i := range w.workers {
		k := &w.workers[i]
		k.q = grow(k.q, packedRows*kernels.GroupHeads*w.p.KeyDim)
		k.s = grow(k.s, kernels.GroupHeads*tileTokens*maxChunk)
		k.near, k.listed, k.rows.of = -1, listed{seq: -1}, -1
		for j := range k.packed {
			k.packed[j] = -1
		}
	}
	w.orderDecode()
	w.threads = pool.Threads()
	w.uniteRows(w.threads)
	units := len(w.units) - 1
	w.claim = max(1, units/(decodeClaims*w.threads))
	pool.RunBy(w.claim, units, w.runDecode)
	if kept > 0 {
		pool.Run(w.p.KVHeads*len(w.seqs), w.runDecodeMass)
	}
}

// orderDecode puts tasks that read the same tiles for several rows of a sequence one after the other, so that tiles come from
// memory once for all of them. It changes no result: tasks are merged in the order of w.decode.
func (w *workspace) orderDecode() {
	w.order = w.order[:0]
	for first := 0; first < len(w.groups); {
		rows := len(w.seqs[w.groups[first].seq].Pos)
		heads := len(w.seqs[w.groups[first].seq].Views)
		groups := w.groups[first:][:rows*heads] // [row][KV head]
		first += rows * heads
		for g := range heads {
			for n, more := 0, true; more; n++ {
				more = false
				for r := range rows {
					if d := &groups[r*heads+g]; n < d.count {
						w.order, more = append(w.order, int32(d.first+n)), true
					}
				}
			}
		}
	}
}

// plan cuts the work of a row and KV head into tasks.
func (w *workspace) plan(d *decodeGroup, kept int, keep bool) int {
	s := &w.seqs[d.seq]
	v := &s.Views[d.g]
	if s.Select != nil && s.Select[d.g] != nil {
		kept = w.planChosen(d, kept, keep)
	} else {
		from, to := v.tileRange(d.span)
		if v.inside(d.span) { // no task has to look at positions
			d.span = everything
		}
		step := chunkTiles(to - from)
		parts := v.parts()
		for i := range parts {
			p := &parts[i]
			kept = w.cut(d, i, max(from, p.first), min(to, p.end()), step, kept, keep)
		}
	}
	d.count = len(w.decode) - d.first
	d.left.n.Store(int32(d.count))
	if d.count == 0 {
		w.mergeEmpty(d)
	}
	return kept
}

func (w *workspace) cut(d *decodeGroup, part, from, to, step, kept int, keep bool) int {
	for ; from < to; from += step {
		t := decodeTask{group: len(w.groups) - 1, part: part, from: from, to: min(from+step, to), partial: w.used, weights: -1}
		w.used += w.partialLen()
		if keep {
			t.weights = kept
			kept += w.group() * tileTokens * step
		}
		w.decode = append(w.decode, t)
	}
	return kept
}

// A partial result is the largest score and the sum of each head of the group, padded to a cache line, then their
// unnormalised outputs.
func (w *workspace) partialLen() int { return w.statLen() + w.group()*w.p.ValueDim }
func (w *workspace) statLen() int    { return (2*w.group() + 15) &^ 15 }

// listed is the range of tiles that a worker's list holds.
type listed struct{ seq, g, part, from, to int }

// fillList lists the tiles of a task, last saying whether it is its row's last: all others see all tokens of their tiles where there
// is no window, so that rows of one sequence share their lists.
func (w *workspace) fillList(k *worker, t *decodeTask, d *decodeGroup, last bool) {
	if last || d.selected || w.p.Window > 0 || w.p.Chunk > 0 {
		k.listed.seq = -1
	} else if now := (listed{d.seq, d.g, t.part, t.from, t.to}); now != k.listed {
		k.listed = now
	} else {
		return
	}
	if d.selected {
		w.pickTiles(k, t, d)
		return
	}
	p := w.seqs[d.seq].Views[d.g].parts()[t.part]
	k.list.fill(&p, t.from, t.to, d.span)
	k.list.turn(&k.pick, p.layout)
}

// decodeUnit computes the partial results of the i-th unit of tasks to be run.
func (w *workspace) decodeUnit(worker, i int) {
	k, tasks := &w.workers[worker], w.unit(i)
	if len(tasks) > 1 && w.decodeRows(k, i, tasks) {
		return
	}
	for _, at := range tasks {
		w.decodeTask(k, i, int(at))
	}
}

// decodeTask computes the partial results of one task, of unit i; the last task of a group merges.
func (w *workspace) decodeTask(k *worker, i, at int) {
	t, p := &w.decode[at], &w.p
	d := &w.groups[t.group]
	partial := w.partials[t.partial:][:w.partialLen()]
	top, sum, out := partial[:w.group()], partial[w.group():2*w.group()], partial[w.statLen():]
	clear(partial)
	l := &k.list
	w.fillList(k, t, d, at == d.first+d.count-1)
	w.fetch(k, i)
	tokens := tileTokens * len(l.masks)
	for h0 := 0; h0 < w.group(); h0 += kernels.GroupHeads {
		heads := min(kernels.GroupHeads, w.group()-h0)
		kq, s := w.packedQuery(k, t, d, h0, heads), k.s[:heads*tokens]
		l.score(k, s, kq, heads, p.KeyDim)
		if p.Softcap > 0 {
			kernels.Softcap(s, p.Softcap)
			l.hideMasked(s)
		}
		for h := range heads {
			row := s[h*tokens:][:tokens]
			top[h0+h] = kernels.Max(row)
			sum[h0+h] = expSum(row, top[h0+h])
		}
		var next [][]byte
		if keys, values := l.integers(); h0 == 0 && keys && values {
			next = w.nextKeys(k, i)
		}
		kernels.WeighTilesThen(l.elemV, out[h0*p.ValueDim:], s, l.values, l.masks, heads, p.ValueDim, next)
		if t.weights >= 0 {
			copy(w.weights[t.weights+h0*tokens:], s)
		}
	}
	if d.left.last() {
		w.merge(k, d)
	}
}

// packedQuery are the queries of a row's heads from h0 of the group on, as the kernels take them.
func (w *workspace) packedQuery(k *worker, t *decodeTask, d *decodeGroup, h0, heads int) []float32 {
	dim, name, slot := w.p.KeyDim, t.group*w.group()+h0, d.row%packedRows
	kq := k.q[slot*kernels.GroupHeads*dim:][:heads*dim]
	if k.packed[slot] != name {
		kernels.PackQuery(kq, w.seqs[d.seq].Q[(d.row*w.p.Heads+d.g*w.group()+h0)*dim:], heads, dim, w.p.Scale)
		k.packed[slot] = name
	}
	return kq
}

// fetch asks for what a task of unit i needs soon and no kernel has asked for. Integers take quantised tiles so fast that keys, values and
// the next task's keys are asked for while others are multiplied; other kernels ask for the tiles ahead of them by themselves.
func (w *workspace) fetch(k *worker, i int) {
	l := &k.list
	keys, values := l.integers()
	if keys && k.near != i {
		for _, t := range l.keys {
			kernels.Fetch(numbersOf(l.layout, t))
		}
	}
	switch {
	case !values:
		fetchAll(l.values[:min(len(l.values), fetchTiles)])
	case !keys:
		fetchAll(l.values)
	}
}

// integers says which of keys and values are multiplied as integers.
func (l *list) integers() (keys, values bool) {
	return kernels.HasIntegerKV(l.elemK), kernels.HasIntegerKV(l.elemV)
}

// numbersOf is the part of a tile of keys that is its own: without scales that it shares.
func numbersOf(l *kvpage.Layout, tile []byte) []byte {
	if e := kernels.KVElem(l.K); e.Low() {
		return tile[len(tile)-e.KeyCodeBytes(l.KeyDim):]
	}
	return tile
}

func fetchAll(tiles [][]byte) {
	for _, t := range tiles {
		kernels.Fetch(t)
	}
}

// nextKeys lists the tiles of keys of the unit that this worker is likely to run after the i-th, if that reads whole tiles: the one
// behind it or, at the end of a claim, the first of the claim that is taken when every thread has taken one more.
func (w *workspace) nextKeys(k *worker, i int) [][]byte {
	k.next = k.next[:0]
	if i++; i%w.claim == 0 {
		i += w.claim * (w.threads - 1)
	}
	if i >= len(w.units)-1 {
		return nil
	}
	t := &w.decode[w.unit(i)[0]]
	d := &w.groups[t.group]
	if d.selected {
		return nil
	}
	p := w.seqs[d.seq].Views[d.g].parts()[t.part]
	per := p.layout.Tiles()
	for tile := t.from - p.first; tile < t.to-p.first; tile++ {
		data := p.pages[tile/per].Data
		if len(data) < p.layout.KBytes() {
			return k.next
		}
		k.next = append(k.next, numbersOf(p.layout, p.layout.KTile(data, tile%per)))
	}
	k.near = i
	return k.next
}

// expSum is kernels.ExpSum for a row that may have no token at all.
func expSum(row []float32, top float32) float32 {
	if math.IsInf(float64(top), -1) {
		clear(row)
		return 0
	}
	return kernels.ExpSum(row, top)
}

// merge joins the partial results of a group in their order and writes the outputs.
func (w *workspace) merge(k *worker, d *decodeGroup) {
	group, dim := w.group(), w.p.ValueDim
	tasks := w.decode[d.first : d.first+d.count]
	for h := range group {
		out := w.outOf(d, h)[:dim]
		k.factors = grow(k.factors, len(tasks))
		top, total := w.totals(d, h, k.factors)
		clear(out)
		w.seqs[d.seq].Norm.set(d.row*w.p.Heads+d.g*group+h, top, total)
		if total == 0 {
			continue
		}
		for i := range tasks {
			partial := w.partials[tasks[i].partial:][:w.partialLen()]
			if partial[group+h] != 0 {
				kernels.Axpy(out, float32(k.factors[i]/total), partial[w.statLen()+h*dim:][:dim])
			}
		}
	}
}

// totals are the largest score of a head over all its tasks and the sum of the weights relative to it, sink included; factors, where not
// nil, are what each task's sums are multiplied by.
func (w *workspace) totals(d *decodeGroup, h int, factors []float64) (top float32, total float64) {
	group := w.group()
	tasks := w.decode[d.first : d.first+d.count]
	top = float32(math.Inf(-1))
	if w.p.Sinks != nil {
		top = w.p.Sinks[d.g*group+h]
	}
	for i := range tasks {
		top = max(top, w.partials[tasks[i].partial+h])
	}
	if math.IsInf(float64(top), -1) {
		return top, 0
	}
	if w.p.Sinks != nil {
		total = math.Exp(float64(w.p.Sinks[d.g*group+h] - top))
	}
	for i := range tasks {
		partial := w.partials[tasks[i].partial:]
		f := math.Exp(float64(partial[h] - top))
		total += float64(partial[group+h]) * f
		if factors != nil {
			factors[i] = f
		}
	}
	return top, total
}

func (w *workspace) mergeEmpty(d *decodeGroup) {
	for h := range w.group() {
		clear(w.outOf(d, h)[:w.p.ValueDim])
		top, total := w.totals(d, h, nil)
		w.seqs[d.seq].Norm.set(d.row*w.p.Heads+d.g*w.group()+h, top, total)
	}
}

// outOf is the part of Out from head h of a group on.
func (w *workspace) outOf(d *decodeGroup, h int) []float32 {
	return w.seqs[d.seq].Out[(d.row*w.p.Heads+d.g*w.group()+h)*w.p.ValueDim:]
}

// decodeMass adds up the weights that decodeChunk kept, for all rows of one sequence and KV head.
func (w *workspace) decodeMass(worker, i int) {
	seq, g := i/w.p.KVHeads, i%w.p.KVHeads
	s, k := &w.seqs[seq], &w.workers[worker]
	l := &k.list
	if s.ColumnSums == nil {
		return
	}
	v, bases := &s.Views[g], w.basesOf(seq, g)
	all := int(bases[len(v.Pages)+len(v.Recent)])
	for j := range w.groups {
		d := &w.groups[j]
		if d.seq != seq || d.g != g || d.row < s.ColumnSums.FromRow {
			continue
		}
		for h := range w.group() {
			s.ColumnSums.clearRow(d.row, g*w.group()+h, all)
		}
		for n := d.first; n < d.first+d.count; n++ {
			t := &w.decode[n]
			tokens := tileTokens * (t.to - t.from)
			if !d.selected {
				p := v.parts()[t.part]
				l.fill(&p, t.from, t.to, d.span)
				tokens = tileTokens * len(l.masks)
			}
			for h := range w.group() {
				top, total := w.totals(d, h, nil)
				partial := w.partials[t.partial:]
				if total == 0 || partial[w.group()+h] == 0 {
					continue
				}
				row := w.weights[t.weights+h*tokens:][:tokens]
				kernels.Scale(row, float32(math.Exp(float64(partial[h]-top))/total))
				if d.selected {
					s.ColumnSums.addChosen(d.row, g*w.group()+h, all, row, t, d)
					continue
				}
				for n, tile := range l.tile {
					at := v.tokenOf(bases, int(tile))
					s.ColumnSums.add(d.row, g*w.group()+h, at, all, row[n*tileTokens:][:tileTokens], l.masks[n])
				}
			}
		}
	}
}
