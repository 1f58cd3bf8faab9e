package attention

import (
	"terrace/internal/kernels"
)

// Blocks of the blockwise path. A task is a block of rows of one sequence and KV head; it walks blocks of blockTiles
// tiles that start at multiples of blockTiles in the view, whatever the rows are, so that a row's sums are formed in
// the same order in every call (invariant 1). A block of keys and values is converted once to the panels of the matrix
// product (L2) and used by all rows of the task, subRows at a time: their scores stay in L1.
const (
	blockTokens = kernels.BlockTokens
	blockTiles  = blockTokens / tileTokens
	subRows     = 24 // 4 × 6 rows: the register tile; on matrix tiles of 32 rows tiledRows
	tiledRows   = 64
	maxRows     = 384       // rows times heads of a task
	maxScratch  = 512 << 10 // bytes of a task's packed queries and outputs: half of a small L2
	lowest      = -1e30     // what the largest score starts from: finite, so that no difference of scores is NaN
)

const log2e = 1.44269504088896341

// prefillTask is a block of rows of one sequence and KV head.
type prefillTask struct {
	seq, g, from, to int
	counts           bool // the rows' weights are kept for ColumnSums
}

func (w *workspace) attendBlocked(pool *kernels.Pool) {
	w.exact = w.phase == kernels.Exact
	w.bf16 = !w.exact && kernels.HasBF16() && w.p.KeyDim%16 == 0 && w.p.ValueDim%16 == 0
	w.subRows, w.padRows = subRows, 1
	if w.bf16 && kernels.BF16RowBlock() > 1 {
		w.subRows, w.padRows = tiledRows, kernels.BF16RowBlock()
	}
	rows := w.blockRows(pool.Threads())
	w.planMass()
	w.prefill = w.prefill[:0]
	longest := rows
	for i := range w.seqs {
		s := &w.seqs[i]
		if s.Sparse != nil {
			continue
		}
		plain := len(s.Pos)
		if s.counts() {
			plain = s.ColumnSums.FromRow
			n := w.massPlans[i].taskRows(rows, w.group())
			longest = max(longest, n)
			w.planRows(prefillTask{seq: i, from: plain, to: len(s.Pos), counts: true}, n)
		}
		w.planRows(prefillTask{seq: i, to: plain}, rows)
	}
	for i := range w.workers {
		w.workers[i].growBlocked(w, longest*w.group())
	}
	pool.Run(len(w.prefill), w.runPrefill)
	if w.planSparse(); len(w.sparse) > 0 {
		pool.Run(len(w.sparseHeads), w.runPrepare)
		pool.Run(len(w.sparse), w.runSparse)
	}
	pool.Run(len(w.mass), w.runMass)
}

// planRows lists the tasks of all KV heads for a range of rows, the longest first.
func (w *workspace) planRows(t prefillTask, rows int) {
	for from := t.from + (t.to-t.from-1)/rows*rows; from >= t.from && from < t.to; from -= rows {
		for g := range w.p.KVHeads {
			w.prefill = append(w.prefill, prefillTask{t.seq, g, from, min(from+rows, t.to), t.counts})
		}
	}
}

// blockRows is how many rows make a task: as many as keep the scratch in L2, fewer where that leaves threads idle.
func (w *workspace) blockRows(threads int) int {
	total := 0
	for i := range w.seqs {
		total += len(w.seqs[i].Pos)
	}
	most := min(maxRows, maxScratch/(2*w.p.KeyDim+4*w.outLen()))
	rows := max(1, most/w.group())
	return max(1, min(rows, (total*w.p.KVHeads+4*threads-1)/(4*threads)))
}

func (w *workspace) panels() int { return (w.p.ValueDim + kernels.PanelCols - 1) / kernels.PanelCols }
func (w *workspace) outLen() int { return w.panels() * kernels.PanelCols }

func (k *worker) growBlocked(w *workspace, rows int) {
	rows = max(rows, sparseRows)
	k.m, k.l, k.corr = grow(k.m, rows), grow(k.l, rows*tileTokens), grow(k.corr, w.subRows)
	rows += w.padRows // a product may run over the last row
	sub := w.subRows + w.padRows
	k.out = grow(k.out, rows*w.outLen())
	k.s = grow(k.s, max(sub*blockTokens, kernels.GroupHeads*tileTokens*maxChunk))
	keyLen, valueLen := blockTokens*w.p.KeyDim, blockTokens*w.outLen()
	if w.bf16 {
		k.q16, k.p16 = grow(k.q16, rows*w.p.KeyDim), grow(k.p16, sub*blockTokens)
		k.key16, k.value16 = grow(k.key16, keyLen), grow(k.value16, valueLen)
		clear(k.value16) // columns past ValueDim stay zero
	} else {
		k.q = grow(k.q, rows*w.p.KeyDim)
		k.key, k.value = grow(k.key, keyLen), grow(k.value, valueLen)
		clear(k.value)
	}
	k.bytes = grow(k.bytes, 4*tileTokens*max(w.p.KeyDim, w.p.ValueDim))
}

// scale is what queries are multiplied by: scores to base 2 unless exact, or unless a cap comes between.
func (w *workspace) scale() float32 {
	if w.exact || w.p.Softcap > 0 {
		return w.p.Scale
	}
	return w.p.Scale * log2e
}

// toBase turns a natural score into the base of the softmax.
func (w *workspace) toBase(x float32) float32 {
	if w.exact {
		return x
	}
	return x * log2e
}

// fromBase is the natural score of one in the base of the softmax.
func (w *workspace) fromBase(x float32) float32 {
	if w.exact {
		return x
	}
	return x / log2e
}

// prefillBlock computes the rows of one task.
func (w *workspace) prefillBlock(worker, i int) {
	t, k, p := w.prefill[i], &w.workers[worker], &w.p
	s := &w.seqs[t.seq]
	group := w.group()
	n := (t.to - t.from) * group
	k.startRows(w, t, n)
	if t.counts {
		k.kept.start(w, n+w.padRows, w.massPlans[t.seq].blocks)
	}
	b := &k.walk
	*b = blockWalk{w: w, k: k}
	for b.begin(t.seq, t.g, s.Pos[t.from:t.to]); b.next(); {
		b.packKeys()
		b.packValues()
		if t.counts {
			k.kept.blocks = append(k.kept.blocks, b.number)
		}
		for r := 0; r < n; r += w.subRows {
			rows := min(w.subRows, n-r)
			b.scores(r, rows)
			if p.Softcap > 0 {
				b.cap(rows)
			}
			b.hide(r, rows, group)
			b.weigh(r, rows, t.counts)
		}
	}
	w.finishRows(t, k)
	if t.counts {
		w.sumStrips(t, k)
	}
}

// startRows packs the queries of a task, row r and head h of the group at r·group+h, and clears the sums.
func (k *worker) startRows(w *workspace, t prefillTask, n int) {
	group, dim := w.group(), w.p.KeyDim
	s := &w.seqs[t.seq]
	for r := t.from; r < t.to; r++ {
		w.packQuery(k, (r-t.from)*group, s.Q[(r*w.p.Heads+t.g*group)*dim:][:group*dim])
	}
	clear(k.out[:n*w.outLen()])
	clear(k.l[:n*tileTokens])
	for r := range n {
		k.m[r] = lowest
		if w.p.Sinks != nil {
			k.m[r] = w.toBase(w.p.Sinks[t.g*group+r%group])
			k.l[r*tileTokens] = 1
		}
	}
}

// packQuery scales whole queries into the worker's rows from row r on.
func (w *workspace) packQuery(k *worker, r int, q []float32) {
	if w.bf16 {
		kernels.PackRowsBF16(k.q16[r*w.p.KeyDim:], q, w.scale())
		return
	}
	dst := k.q[r*w.p.KeyDim:][:len(q)]
	copy(dst, q)
	kernels.Scale(dst, w.scale())
}

// finishRows divides by the sums and writes Out, and notes one over the sums for rows that count.
func (w *workspace) finishRows(t prefillTask, k *worker) {
	s, group, dim := &w.seqs[t.seq], w.group(), w.p.ValueDim
	k.kept.rest = grow(k.kept.rest, (t.to-t.from)*group)
	for r := range (t.to - t.from) * group {
		row, head := t.from+r/group, t.g*group+r%group
		var sum float64
		for _, x := range k.l[r*tileTokens:][:tileTokens] {
			sum += float64(x)
		}
		out := s.Out[(row*w.p.Heads+head)*dim:][:dim]
		copy(out, k.out[r*w.outLen():])
		s.Norm.set(row*w.p.Heads+head, w.fromBase(k.m[r]), sum)
		if sum == 0 {
			clear(out)
			k.kept.rest[r] = 0
			continue
		}
		k.kept.rest[r] = float32(1 / sum)
		kernels.Scale(out, k.kept.rest[r])
	}
}
