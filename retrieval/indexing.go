package retrieval

import (
	"slices"

	"terrace/attention"
	"terrace/attention/keyindex"
	"terrace/internal/trace"
	"terrace/policy"
)

// indexing is the part of a selector under a policy that chooses by the model's own trained indexer, for prompts as for steps
// (policy.RowSelector).
type indexing struct {
	rows    policy.RowSelector // nil = the policy is none
	figures *policy.Index
	mask    attention.RowMask
	sparse  attention.Sparse
	scratch []indexScratch // a worker
	pairs   []int          // of each row of the last mask
}

// indexScratch is what a worker chooses with.
type indexScratch struct {
	keys  keyindex.IndexScratch
	rank  policy.IndexRank
	picks []int32
}

func (x *indexing) init(s *selector) {
	x.rows, _ = s.t.set.Selector.(policy.RowSelector)
	x.figures = s.t.f.o.Shape.Index
}

// Indexes reports whether rows of a text are read as the model's indexer chooses in a layer: their index queries are wanted then (Pass.Index).
func (t *Sequence) Indexes(layer int) bool {
	return t.sel != nil && t.sel.indexing.rows != nil && t.Acts(layer) && t.f.o.Shape.kv(layer).Index > 0
}

// Indexes is that of any text of the pass.
func (p *Pass) Indexes(layer int) bool {
	for i := range p.Rows {
		if p.Rows[i].Sequence.Indexes(layer) {
			return true
		}
	}
	return false
}

// Index takes a layer's index queries x [rows, Heads·Dim+Heads], those of all rows that are projected; they must hold until Select.
func (p *Pass) Index(x []float32) {
	width, row := p.f.o.Shape.Index.Heads*(p.f.o.Shape.Index.Dim+1), 0
	for i := range p.Rows {
		r := &p.Rows[i]
		r.index = x[row*width : (row+len(r.Pos))*width]
		row += len(r.Pos)
	}
}

// indexQuery is that of a row of those that are left, counted from the end of those projected.
func (r *Rows) indexQuery(i int) []float32 {
	x := r.Sequence.f.o.Shape.Index
	width := x.Heads * (x.Dim + 1)
	at := len(r.index) - (len(r.Pos)-i)*width
	return r.index[at : at+width]
}

// maskRows restricts the attention of a prompt's rows to what the indexer chooses for each.
func (s *selector) maskRows(layer int, r *Rows, seq *attention.Seq) error {
	x, n := &s.indexing, len(r.Pos)
	last := int(r.Pos[n-1]) + 1
	if x.rows.ReadsAll(last) {
		return nil
	}
	defer s.t.f.o.Trace.Layer(trace.Score, "select", layer).End()
	l, shown := &s.layers[layer], s.t.Layer(layer, n)
	if err := s.refresh(l, seq.Views, shown); err != nil {
		return err
	}
	m := &x.mask
	m.First, m.Words = r.Pos[0], last/64+2
	m.Bits = append(m.Bits[:0], make([]uint64, n*m.Words)...)
	pool := s.t.pool()
	for len(x.scratch) < pool.Threads() {
		x.scratch = append(x.scratch, indexScratch{})
	}
	x.pairs = append(x.pairs[:0], make([]int, n)...)
	pool.Run(n, func(worker, i int) {
		x.pairs[i] = x.maskRow(l.index, r, i, &x.scratch[worker])
	})
	x.sparse.Heads = x.sparse.Heads[:0]
	for range shown.Heads {
		x.sparse.Heads = append(x.sparse.Heads, attention.HeadMask{Rows: m})
	}
	seq.Sparse = &x.sparse
	return nil
}

// maskRow sets the bits of a row of the mask; it returns how many.
func (x *indexing) maskRow(index *keyindex.Index, r *Rows, i int, w *indexScratch) int {
	n := int(r.Pos[i]) + 1
	bits := x.mask.Row(r.Pos[i])
	if x.rows.ReadsAll(n) {
		for at := range n {
			bits[at/64] |= 1 << (at % 64)
		}
		return n
	}
	heads, query := x.figures.Heads, r.indexQuery(i)
	queries := heads * x.figures.Dim
	scores, stride := index.Indexed().Score(&w.keys, query[:queries], heads, n/x.figures.Block)
	w.picks = x.rows.Choose(w.picks[:0], query[queries:], scores, stride, n, &w.rank)
	for _, at := range w.picks {
		bits[at/64] |= 1 << (at % 64)
	}
	return len(w.picks)
}

// MaskedPairs is how many pairs of rows and keys of a head the last mask of a text has.
func (t *Sequence) MaskedPairs() (pairs int) {
	for _, n := range t.sel.indexing.pairs {
		pairs += n
	}
	return pairs
}

// cut forgets what the index has of tokens from position n on, which are taken back; nil has nothing.
func (s *selector) cut(n int32) {
	if s == nil {
		return
	}
	for layer := range s.layers {
		index := s.layers[layer].index
		if index == nil {
			continue
		}
		index.Indexed().Cut(int(n))
		for g := range s.t.f.o.Shape.Layers[layer].KV.Heads {
			pos := s.t.seq.PositionList(layer, g)
			left, _ := slices.BinarySearch(pos, n)
			index.Head(g).Cut(pos[:left])
		}
	}
}
