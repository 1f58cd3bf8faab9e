package attention

import (
	"terrace/internal/kernels"
)

// ColumnSums receives softmax weights, so that only callers who need them pay for them.
type ColumnSums struct {
	FromRow int         // first row that counts
	Sum     [][]float32 // [Heads][tokens in view order]: Σ over rows >= FromRow of the weights is added; nil = not wanted
	Rows    [][]float32 // [Heads][(n-FromRow)·tokens]: weights of each row >= FromRow, token fastest; nil = not wanted
}

// clearRow zeroes the weights of a row that will be added.
func (m *ColumnSums) clearRow(row, head, tokens int) {
	if m.Rows != nil {
		clear(m.Rows[head][(row-m.FromRow)*tokens:][:tokens])
	}
}

// add adds the weights of one row for the 16 tokens of a tile whose first is number at in the view; only those of the
// mask count.
func (m *ColumnSums) add(row, head, at, tokens int, weights []float32, mask uint16) {
	for j, x := range weights {
		if mask>>j&1 == 0 {
			continue
		}
		if m.Sum != nil {
			m.Sum[head][at+j] += x
		}
		if m.Rows != nil {
			m.Rows[head][(row-m.FromRow)*tokens+at+j] = x
		}
	}
}

// counts reports whether weights of a sequence's rows are wanted.
func (s *Seq) counts() bool {
	return s.ColumnSums != nil && s.ColumnSums.FromRow < len(s.Pos) && (s.ColumnSums.Sum != nil || s.ColumnSums.Rows != nil)
}

// Column sums of the blockwise phases. A task whose rows count keeps the weights of every block of keys as the softmax
// left them, beside what the block's maximum corrected earlier ones by. When its last block is done, a weight's factor is
// the product of the corrections after its block over the row's sum, and the weights times their factors are added up:
// no second q·k and no second exponential. Sums belong to strips of stripRows rows counted from FromRow, and strips are
// added in their order, so that threads and batch do not change a bit of the result (invariant 1).
const (
	stripHeads  = 96      // rows times heads of a strip, less where a context is so long that
	keptNumbers = 4 << 20 // weights of a task would be more than this: 8 MiB of bf16, which stay in L3
)

// massTask is one block of keys of one sequence and KV head, for all strips.
type massTask struct{ seq, g, block int }

// massPlan says where a sequence's strips lie.
type massPlan struct {
	stripRows int
	blocks    int // of keys, of the longest view
	sums      int // start in stripSums: [strip][Heads][blocks·128]
	seen      int // start in stripSeen: [strip][KVHeads][blocks]
}

// keptWeights are what a task keeps for its sums.
type keptWeights struct {
	blocks  []int // their numbers in the view
	weights []float32
	bf16    []uint16  // [blocks][rows+padRows][128] in one of the two
	factors []float32 // [blocks][rows]: corrections, in the end what weights count
	rest    []float32 // [rows]
	rows    int       // of a block, padding included
}

// planMass finds room for the sums of every strip.
func (w *workspace) planMass() {
	w.massPlans, w.mass = w.massPlans[:0], w.mass[:0]
	sums, seen := 0, 0
	for i := range w.seqs {
		s := &w.seqs[i]
		p := massPlan{sums: sums, seen: seen}
		if s.counts() {
			for _, rows := range s.ColumnSums.Rows {
				clear(rows)
			}
			for g := range s.Views {
				n := (s.Views[g].tileCount() + blockTiles - 1) / blockTiles
				p.blocks = max(p.blocks, n)
				for block := range n {
					if s.ColumnSums.Sum != nil {
						w.mass = append(w.mass, massTask{i, g, block})
					}
				}
			}
			p.stripRows = max(1, min(stripHeads, keptNumbers/max(1, p.blocks*blockTokens))/w.group())
			strips := (len(s.Pos) - s.ColumnSums.FromRow + p.stripRows - 1) / p.stripRows
			seen += strips * w.p.KVHeads * p.blocks
			if s.ColumnSums.Sum != nil {
				sums += strips * w.p.Heads * p.blocks * blockTokens
			}
		}
		w.massPlans = append(w.massPlans, p)
	}
	w.stripSums, w.stripSeen = grow(w.stripSums, sums), grow(w.stripSeen, seen)
	clear(w.stripSeen)
}

// taskRows is how many of the rows that count make a task: whole strips, most at best, as many as can be kept.
func (p *massPlan) taskRows(most, group int) int {
	most = min(most, keptNumbers/max(1, p.blocks*blockTokens*group))
	return max(1, most/p.stripRows) * p.stripRows
}

// start forgets the last task's weights and makes room for those of some rows and blocks.
func (k *keptWeights) start(w *workspace, rows, blocks int) {
	k.blocks, k.rows = k.blocks[:0], rows
	k.factors = grow(k.factors, blocks*rows)
	if w.bf16 {
		k.bf16 = grow(k.bf16, blocks*rows*blockTokens)
	} else {
		k.weights = grow(k.weights, blocks*rows*blockTokens)
	}
}

// at is where a row of the newest block is.
func (k *keptWeights) at(row int) int { return (len(k.blocks)-1)*k.rows + row }

// settle turns the corrections of n rows into factors, last block first; rest holds one over the rows' sums.
func (k *keptWeights) settle(n int) {
	rest := k.rest[:n]
	for i := len(k.blocks) - 1; i >= 0; i-- {
		f := k.factors[i*k.rows:][:n]
		for r, x := range rest {
			rest[r], f[r] = x*f[r], x
		}
	}
}

// columnSums adds every stride-th of n rows of a kept block, from row on, times their factors, to sums.
func (k *keptWeights) columnSums(w *workspace, block, row, n, stride int, sums []float32) {
	at := block*k.rows + row
	factors := k.factors[at : at+n]
	if w.bf16 {
		kernels.ColumnSumsBF16(k.bf16[at*blockTokens:][:n*blockTokens], factors, stride, sums)
	} else {
		kernels.ColumnSums(k.weights[at*blockTokens:][:n*blockTokens], factors, stride, sums)
	}
}

// sumStrips adds up a task's kept weights, strip by strip.
func (w *workspace) sumStrips(t prefillTask, k *worker) {
	s, p, group := &w.seqs[t.seq], &w.massPlans[t.seq], w.group()
	k.kept.settle((t.to - t.from) * group)
	for i, block := range k.kept.blocks {
		for from := t.from; from < t.to && s.ColumnSums.Sum != nil; from += p.stripRows {
			strip, rows := (from-s.ColumnSums.FromRow)/p.stripRows, min(p.stripRows, t.to-from)
			w.stripSeen[p.seen+(strip*w.p.KVHeads+t.g)*p.blocks+block] = true
			for h := range group {
				sums := w.stripSums[p.sums+((strip*w.p.Heads+t.g*group+h)*p.blocks+block)*blockTokens:][:blockTokens]
				clear(sums)
				k.kept.columnSums(w, i, (from-t.from)*group+h, (rows-1)*group+1, group, sums)
			}
		}
		if s.ColumnSums.Rows != nil {
			w.rowWeights(t, k, i)
		}
	}
}

// rowWeights writes the weights of each row of a task for a kept block.
func (w *workspace) rowWeights(t prefillTask, k *worker, i int) {
	b, s, group := &k.walk, &w.seqs[t.seq], w.group()
	b.take(k.kept.blocks[i] * blockTiles)
	for r := range (t.to - t.from) * group {
		one := k.row[:]
		clear(one)
		k.kept.columnSums(w, i, r, 1, 1, one)
		rows := s.ColumnSums.Rows[t.g*group+r%group]
		at := (t.from + r/group - s.ColumnSums.FromRow) * (len(rows) / (len(s.Pos) - s.ColumnSums.FromRow))
		b.eachToken(t.seq, t.g, func(column, token int) { rows[at+token] = one[column] })
	}
}

// massBlock adds the sums of all strips for one block of keys, in the order of the rows.
func (w *workspace) massBlock(worker, i int) {
	t, k := w.mass[i], &w.workers[worker]
	s, p, group := &w.seqs[t.seq], &w.massPlans[t.seq], w.group()
	b := &k.walk
	*b = blockWalk{w: w, k: k}
	b.begin(t.seq, t.g, s.Pos[s.ColumnSums.FromRow:])
	b.take(t.block * blockTiles)
	strips := (len(s.Pos) - s.ColumnSums.FromRow + p.stripRows - 1) / p.stripRows
	for head := t.g * group; head < (t.g+1)*group; head++ {
		sums := k.row[:]
		clear(sums)
		for strip := range strips {
			if w.stripSeen[p.seen+(strip*w.p.KVHeads+t.g)*p.blocks+t.block] {
				kernels.Add(sums, w.stripSums[p.sums+((strip*w.p.Heads+head)*p.blocks+t.block)*blockTokens:][:blockTokens])
			}
		}
		b.eachToken(t.seq, t.g, func(column, token int) { s.ColumnSums.Sum[head][token] += sums[column] })
	}
}

// eachToken calls f with the column and the number in view order of each token of the block.
func (b *blockWalk) eachToken(seq, g int, f func(column, token int)) {
	bases := b.w.basesOf(seq, g)
	var chosen []int32
	if s := &b.w.seqs[seq]; s.Select != nil {
		chosen = s.Select[g]
	}
	for i := range b.slots {
		s := &b.slots[i]
		if s.mask == 0 {
			continue
		}
		first := b.v.tokenOf(bases, int(s.tile))
		for j := range tileTokens {
			switch {
			case s.mask>>j&1 == 0:
			case chosen != nil:
				f(i*tileTokens+j, int(chosen[first+j]))
			default:
				f(i*tileTokens+j, first+j)
			}
		}
	}
}
