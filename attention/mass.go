package attention

import (
	"terrace/internal/kernels"
)

// Mass receives softmax weights, so that only callers who need them pay for them.
type Mass struct {
	FromRow int         // first row that counts
	Sum     [][]float32 // [Heads][tokens in view order]: Σ over rows >= FromRow of the weights is added; nil = not wanted
	Rows    [][]float32 // [Heads][(n-FromRow)·tokens]: weights of each row >= FromRow, token fastest; nil = not wanted
}

// clearRow zeroes the weights of a row that will be added.
func (m *Mass) clearRow(row, head, tokens int) {
	if m.Rows != nil {
		clear(m.Rows[head][(row-m.FromRow)*tokens:][:tokens])
	}
}

// add adds the weights of one row for the 16 tokens of a tile whose first is number at in the view; only those of the
// mask count.
func (m *Mass) add(row, head, at, tokens int, weights []float32, mask uint16) {
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

// massTask is one block of keys of one sequence and KV head, for all rows that count.
type massTask struct{ seq, g, block int }

// planMass lists the blocks whose column sums are wanted.
func (w *workspace) planMass() {
	w.mass, w.massAt = w.mass[:0], w.massAt[:0]
	rows := 0
	for i := range w.seqs {
		s := &w.seqs[i]
		w.massAt = append(w.massAt, rows)
		if s.Mass != nil {
			rows += max(0, len(s.Pos)-s.Mass.FromRow) * w.p.Heads
		}
		if s.Mass == nil || s.Mass.FromRow >= len(s.Pos) || (s.Mass.Sum == nil && s.Mass.Rows == nil) {
			continue
		}
		for _, rows := range s.Mass.Rows {
			clear(rows)
		}
		for g := range s.Views {
			for block := 0; block*blockTiles < s.Views[g].tileCount(); block++ {
				w.mass = append(w.mass, massTask{i, g, block})
			}
		}
	}
	for i := range w.workers {
		w.workers[i].sums = grow(w.workers[i].sums, blockTokens)
	}
	if w.bf16 {
		w.massQ16 = grow(w.massQ16, (rows+w.padRows)*w.p.KeyDim)
	} else {
		w.massQ = grow(w.massQ, rows*w.p.KeyDim)
	}
}

// packMass packs the queries of one sequence and head that count, so that every block of keys finds them ready.
func (w *workspace) packMass(_, i int) {
	seq, head, dim := i/w.p.Heads, i%w.p.Heads, w.p.KeyDim
	s := &w.seqs[seq]
	if s.Mass == nil {
		return
	}
	for r := s.Mass.FromRow; r < len(s.Pos); r++ {
		at := (w.massAt[seq] + head*(len(s.Pos)-s.Mass.FromRow) + r - s.Mass.FromRow) * dim
		q := s.Q[(r*w.p.Heads+head)*dim:][:dim]
		if w.bf16 {
			kernels.PackRowsBF16(w.massQ16[at:], q, w.scale())
			continue
		}
		copy(w.massQ[at:], q)
		kernels.Scale(w.massQ[at:at+dim], w.scale())
	}
}

// massBlock is the second pass over one block of keys: scores again, weights from the rows' saved sums, added up row
// after row. Its cost is half the first pass's products for the rows that count, and nothing for those before.
func (w *workspace) massBlock(worker, i int) {
	t, k := w.mass[i], &w.workers[worker]
	s := &w.seqs[t.seq]
	b := &k.walk
	*b = blockWalk{w: w, k: k}
	b.begin(t.seq, t.g, s.Pos[s.Mass.FromRow:])
	at := t.block * blockTiles
	if at < b.at || at >= b.end || !b.take(at) {
		return
	}
	b.packKeys()
	for head := t.g * w.group(); head < (t.g+1)*w.group(); head++ {
		w.massHead(t, b, head)
	}
}

// massHead adds the weights of all rows of one head for the tokens of the block.
func (w *workspace) massHead(t massTask, b *blockWalk, head int) {
	s, k, dim := &w.seqs[t.seq], b.k, w.p.KeyDim
	from, n := s.Mass.FromRow, len(s.Pos)
	clear(k.sums)
	for r := from; r < n; r += w.subRows {
		rows := min(w.subRows, n-r)
		if s.Pos[r+rows-1] < b.low || w.p.sees(s.Pos[r]).low > b.high {
			continue
		}
		at := (w.massAt[t.seq] + head*(n-from) + r - from) * dim
		if w.bf16 {
			b.scores16(w.massQ16[at:], rows)
		} else {
			b.scores32(w.massQ[at:], rows)
		}
		if w.p.Softcap > 0 {
			b.cap(rows)
		}
		b.hide(r-from, rows, 1)
		logSums := w.logSums[w.sumsAt[t.seq]+head*n+r:][:rows]
		if s.Mass.Rows == nil {
			kernels.ColumnSums(w.exact, k.s[:rows*blockTokens], logSums, k.sums)
			continue
		}
		one := k.row[:]
		for j := range rows {
			clear(one)
			kernels.ColumnSums(w.exact, k.s[j*blockTokens:][:blockTokens], logSums[j:j+1], one)
			b.eachToken(t, func(i, token int) { s.Mass.Rows[head][(r-from+j)*len(s.Mass.Rows[head])/(n-from)+token] = one[i] })
			kernels.Add(k.sums, one)
		}
	}
	if s.Mass.Sum != nil {
		b.eachToken(t, func(i, token int) { s.Mass.Sum[head][token] += k.sums[i] })
	}
}

// eachToken calls f with the column and the number in view order of each token of the block.
func (b *blockWalk) eachToken(t massTask, f func(column, token int)) {
	bases := b.w.basesOf(t.seq, t.g)
	var chosen []int32
	if s := &b.w.seqs[t.seq]; s.Select != nil {
		chosen = s.Select[t.g]
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
