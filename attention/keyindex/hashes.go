package keyindex

import (
	"math"
	"slices"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/policy"
)

// Hashes has the tokens of a KV head in tables by the signs of random projections (SimHash; MagicPIG): a hash is `bits` signs of
// (key − mean)·column, and a table has a chain of tokens for each of its 2^bits hashes, the newest first.
type Hashes struct {
	dim, bits, tables int
	panels            []float32 // columns [⌈bits·tables/64⌉][dim][64]
	mean              []float32 // [dim] of the keys that are to be hashed; empty = there were none
	first             []int32   // [tables][2^bits] number of a token plus 1; 0 = none has the hash
	next              []int32   // [tokens][tables] likewise: the one before it in the chain
	norms             []float32 // [tokens] ‖key − mean‖

	signs  []float32 // scratch: projections of up to 64 rows
	codes  []int32   // [tables] of one row
	counts []uint16  // [tokens] tables in which a token has the query's hash
	met    []int32   // tokens whose counts are not 0
}

// NewHashes returns an empty one for keys of dim numbers.
func NewHashes(dim, bits, tables int) *Hashes {
	return &Hashes{dim: dim, bits: bits, tables: tables, codes: make([]int32, tables)}
}

// Bytes is the memory of tables, norms, mean and columns.
func (x *Hashes) Bytes() int64 {
	return 4 * int64(len(x.panels)+len(x.mean)+len(x.first)+cap(x.next)+cap(x.norms))
}

// Trained reports whether there is a mean.
func (x *Hashes) Trained() bool { return len(x.mean) > 0 }

// Reset forgets every token, and the mean.
func (x *Hashes) Reset() { x.mean, x.next, x.norms = x.mean[:0], x.next[:0], x.norms[:0] }

// Train takes the columns [bits·tables, dim], and the mean of the keys from one token of a view to before another; without any there are no
// hashes.
func (x *Hashes) Train(columns []float32, view *attention.View, from, to int) {
	if from >= to {
		return
	}
	var reader attention.Reader
	sums, key := make([]float64, x.dim), make([]float32, x.dim)
	for i := from; i < to; i++ {
		reader.Keys(view, i, i+1, key)
		for d, k := range key {
			sums[d] += float64(k)
		}
	}
	for _, s := range sums {
		x.mean = append(x.mean, float32(s/float64(to-from)))
	}
	n := x.bits * x.tables
	x.panels = make([]float32, x.panelCount()*x.dim*kernels.PanelCols)
	for c := range n {
		panel := x.panels[c/kernels.PanelCols*x.dim*kernels.PanelCols:]
		for d := range x.dim {
			panel[d*kernels.PanelCols+c%kernels.PanelCols] = columns[c*x.dim+d]
		}
	}
	x.first = make([]int32, x.tables<<x.bits)
}

func (x *Hashes) panelCount() int {
	return (x.bits*x.tables + kernels.PanelCols - 1) / kernels.PanelCols
}

// Put adds keys [n, dim], which it changes, behind the others.
func (x *Hashes) Put(keys []float32, n int) {
	if !x.Trained() {
		return
	}
	for i := range n {
		key := keys[i*x.dim : (i+1)*x.dim]
		kernels.Axpy(key, -1, x.mean)
		x.norms = append(x.norms, float32(math.Sqrt(float64(kernels.Dot(key, key)))))
	}
	x.project(keys, n)
	for i := range n {
		x.hash(i)
		token := int32(len(x.next)/x.tables) + 1
		for t, code := range x.codes {
			head := &x.first[t<<x.bits|int(code)]
			x.next = append(x.next, *head)
			*head = token
		}
	}
}

// project fills signs with the products of rows [n, dim] and the columns.
func (x *Hashes) project(rows []float32, n int) {
	stride := x.panelCount() * kernels.PanelCols
	x.signs = sized(x.signs, n*stride)
	for p := range x.panelCount() {
		size := x.dim * kernels.PanelCols
		kernels.Gemm(x.signs[p*kernels.PanelCols:], stride, rows, x.dim, x.panels[p*size:(p+1)*size], x.dim, n, nil)
	}
}

// hash fills codes with those of row i of the last projection.
func (x *Hashes) hash(i int) {
	row := x.signs[i*x.panelCount()*kernels.PanelCols:]
	for t := range x.codes {
		code := int32(0)
		for b, s := range row[t*x.bits : (t+1)*x.bits] {
			if s > 0 {
				code |= 1 << b
			}
		}
		x.codes[t] = code
	}
}

// Cut forgets all but the first n tokens.
func (x *Hashes) Cut(n int) {
	if !x.Trained() {
		return
	}
	for i, token := range x.first {
		for int(token) > n {
			token = x.next[(int(token)-1)*x.tables+i>>x.bits]
		}
		x.first[i] = token
	}
	x.next, x.norms = x.next[:n*x.tables], x.norms[:n]
}

// Colliding fills dst, one for each query of q [len(dst), dim], with the tokens that have its hash in at least two tables, and returns the
// bytes of the tables that were read.
func (x *Hashes) Colliding(q []float32, dst []policy.Collisions) (bytes int64) {
	x.project(q, len(dst))
	for r := range dst {
		x.hash(r)
		c := &dst[r]
		c.Tokens, c.Norms, c.Mean = c.Tokens[:0], x.norms, kernels.Dot(q[r*x.dim:(r+1)*x.dim], x.mean)
		for len(x.counts) < len(x.norms) {
			x.counts = append(x.counts, 0)
		}
		x.met = x.met[:0]
		visits := 0
		for t, code := range x.codes {
			for token := x.first[t<<x.bits|int(code)]; token > 0; token = x.next[int(token-1)*x.tables+t] {
				visits++
				switch x.counts[token-1]++; x.counts[token-1] {
				case 1:
					x.met = append(x.met, token-1)
				case 2:
					c.Tokens = append(c.Tokens, token-1)
				}
			}
		}
		for _, token := range x.met {
			x.counts[token] = 0
		}
		slices.Sort(c.Tokens)
		bytes += 4 * int64(x.tables+visits+len(c.Tokens))
	}
	return bytes
}

// Colliding implements policy.Scorer.
func (h *Head) Colliding(_ int, q []float32, dst []policy.Collisions) {
	h.readBytes += h.hashes.Colliding(q, dst)
}

// Colliding implements policy.Scorer.
func (x *Index) Colliding(kvHead int, q []float32, dst []policy.Collisions) {
	x.heads[kvHead].Colliding(0, q, dst)
}

// hashed prepares the tables of a head: the mean is that of the prompt's keys between its first and newest tokens.
func (h *sketch) hashed(l *policy.Layer, kvHead int, p policy.Projector) {
	pos := l.Pos[kvHead]
	from, _ := slices.BinarySearch(pos, int32(h.need.Sinks))
	to, _ := slices.BinarySearch(pos, int32(l.Prompt-h.need.Recent))
	columns := make([]float32, h.need.Rank*h.dim)
	p.Project(l, kvHead, columns)
	h.hashes.Train(columns, h.view, from, to)
}
