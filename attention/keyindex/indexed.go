package keyindex

import (
	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// Indexed are the index keys of one layer for a model's trained indexer, taken from behind its cached keys: a column a token, or one a
// block of tokens, of which those that are not whole yet have none.
type Indexed struct {
	dim, block int
	finish     func(layer, position int, x []float32)
	columns    *Columns
	tokens     int   // that columns stand for
	last       int32 // position of the newest of them
	reader     attention.Reader
	head, keys []float32
}

// Refresh brings the keys in line with the cache: new ones are added; where tokens have gone they are made again.
func (x *Indexed) Refresh(views []attention.View, l *policy.Layer) {
	if x == nil {
		return
	}
	pos, n := l.Pos[0], len(l.Pos[0])
	for g := range views {
		n = min(n, len(l.Pos[g]))
	}
	if x.tokens > n || x.tokens > 0 && pos[x.tokens-1] != x.last {
		x.Cut(0)
	}
	if x.columns == nil {
		x.columns = NewColumns(indexElem(views[0].Layout.K), x.dim)
		x.reader.Index = true
	}
	for n -= n % x.block; x.tokens < n; {
		m := min(max(x.block, kernels.PanelCols/x.block*x.block), n-x.tokens)
		x.read(views, m)
		for i := 0; i < m; i += x.block {
			key := x.keys[i*x.dim : (i+1)*x.dim]
			if x.block > 1 {
				for j := 1; j < x.block; j++ {
					kernels.Add(key, x.keys[(i+j)*x.dim:(i+j+1)*x.dim])
				}
				kernels.Scale(key, 1/float32(x.block))
				x.finish(l.Index, int(pos[x.tokens+i]), key)
			}
			x.columns.Put((x.tokens+i)/x.block, key)
		}
		x.tokens += m
		x.last = pos[x.tokens-1]
	}
}

// read takes the index keys of the next m tokens together from behind the keys of all KV heads.
func (x *Indexed) read(views []attention.View, m int) {
	dim, share := views[0].Layout.KeyDim, views[0].Layout.Index
	x.head, x.keys = sized(x.head, m*dim), sized(x.keys, m*x.dim)
	for g := range views {
		x.reader.Keys(&views[g], x.tokens, x.tokens+m, x.head)
		at := min(g*share, x.dim)
		for i := range m {
			copy(x.keys[i*x.dim+at:(i+1)*x.dim], x.head[(i+1)*dim-share:(i+1)*dim])
		}
	}
}

// indexElem is the type of index keys beside cached keys of a type.
func indexElem(keys kvpage.Elem) kvpage.Elem {
	if keys == kvpage.F32 {
		return kvpage.F32
	}
	return kvpage.F16
}

// Cut forgets what stands for tokens from number n on.
func (x *Indexed) Cut(n int) {
	if x == nil {
		return
	}
	if n -= n % x.block; n >= x.tokens {
		return
	}
	x.tokens, x.last = n, -1
	if x.columns != nil {
		x.columns.Cut(n / x.block)
	}
}

func (x *Indexed) bytes() int64 {
	if x.columns == nil {
		return 0
	}
	return x.columns.Bytes()
}

// Indexed are the keys of the model's trained indexer; nil = there are none, which its methods take as no tokens.
func (x *Index) Indexed() *Indexed {
	if x == nil {
		return nil
	}
	return x.indexed
}

// IndexScratch is what one goroutine needs to score index keys.
type IndexScratch struct {
	queries, scores []float32
}

// Score multiplies heads index queries q [heads, Dim] with the first units index keys: scores [heads][stride], which hold until the
// scratch is used again. Several goroutines may ask at a time, each with its scratch.
func (x *Indexed) Score(s *IndexScratch, q []float32, heads, units int) (scores []float32, stride int) {
	return x.columns.scoreFirst(s, q, heads, units)
}

// scoreFirst writes the products of q [heads, rows] with the first columns.
func (s *Columns) scoreFirst(w *IndexScratch, q []float32, heads, columns int) (scores []float32, stride int) {
	tiles := (columns + tileColumns - 1) / tileColumns
	stride = tiles * tileColumns
	w.scores, w.queries = sized(w.scores, heads*stride), sized(w.queries, kernels.GroupHeads*s.layout.KeyDim)
	for h := 0; h < heads; h += kernels.GroupHeads {
		n := min(kernels.GroupHeads, heads-h)
		turned := w.queries[:n*s.layout.KeyDim]
		for i := range n {
			for d := range s.rows {
				turned[d*n+i] = q[(h+i)*s.rows+d]
			}
		}
		clear(turned[s.rows*n:])
		kernels.ScoreTiles(kernels.KVElem(s.elem), w.scores[h*stride:(h+n)*stride], turned, s.data[:tiles], s.masks[:tiles], n, s.layout.KeyDim)
	}
	return w.scores, stride
}
