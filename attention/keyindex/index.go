package keyindex

import (
	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// Index answers a selecting policy's questions about the keys of one layer of one session (policy.Scorer). It keeps the
// sketch that the policy declared, builds it from the cache at the end of the prompt, and adds each new token. KV heads
// share nothing, so that different heads may be asked at the same time.
type Index struct {
	heads     []Head
	indexed   *Indexed // of a trained indexer; nil = there are none
	joint     *Joint   // of all KV heads together; nil = there is nothing
	readBytes int64    // of what heads have together
}

// Head is the part of one KV head. It is a policy.Scorer that knows one head and calls it 0.
type Head struct {
	sketch
	scan      scan
	readBytes int64 // to score with
}

// sketch is what is kept of a head's keys to score them by.
type sketch struct {
	need     policy.Sketch
	dim      int
	view     *attention.View // refreshed at each step
	tokens   int             // of the cache that are in the index
	last     int32           // position of the newest of them
	moving   bool            // pages may have gone elsewhere since the last step
	slots    Slots           // of the tokens that are in the index, where not all are; nil = all
	followed *followed       // of tokens that leave and come back; nil = where tokens have left it is built again
	fixed    fixed
	tiles    Tiles
	scratch  headScratch
	copies
}

// copies are the forms in which keys are kept, nil where a policy does not want them.
type copies struct {
	columns *Columns // of half and projected keys, and of exact ones that a stream keeps
	codes   *Codes   // of 8-bit and 4-bit keys
	bounds  []*Bounds
	product *Product
	groups  *Clusters
	values  *Product // of values, beside product; nil = they are not coded
	rounded *Rounded // of single tokens, beside the sketch
	hashes  *Hashes
}

// Slots says which tokens an index holds and where, when it holds only some of them (those that a drive does not score).
type Slots interface {
	// Slot is the place of a token's key, or -1: it is not in the index.
	Slot(token int) int32
}

// fixed is what the prompt decides once.
type fixed struct {
	scale  []float32 // of small integers: per channel or one; empty where each token has its own
	matrix []float32 // [Rank, dim] of projected keys
}

type headScratch struct {
	reader attention.Reader
	keys   []float32
	values []float32
	code   []int8
	scale  [1]float32 // of code, where it is the token's own
	sums   []float32
	turned []float32
	listed []float32
}

// New returns an empty index for a layer.
func New(need policy.Sketch, kvHeads, dim int) *Index {
	x := &Index{heads: make([]Head, kvHeads)}
	if need.Kind == policy.SketchJoint {
		x.joint = &Joint{rank: need.Rank, dim: dim}
	}
	if need.Kind == policy.SketchIndex {
		x.indexed = &Indexed{dim: need.Rank, block: need.IndexBlock, finish: need.Finish}
	}
	for g := range x.heads {
		h := &x.heads[g]
		h.need, h.dim = need, dim
		if need.Listed == policy.ListedInt4 {
			h.rounded = &Rounded{dim: dim}
		}
		switch need.Kind {
		case policy.SketchBounds:
			for _, b := range need.Blocks {
				h.bounds = append(h.bounds, NewBounds(b, dim))
			}
		case policy.SketchInt8:
			h.codes = NewCodes(kvpage.I8, dim)
		case policy.SketchInt4:
			h.codes = NewCodes(kvpage.I4, codedDim(&need, dim))
		case policy.SketchHalf:
			h.columns = NewColumns(kvpage.F16, dim)
		case policy.SketchProjected:
			h.columns = NewColumns(kvpage.F16, need.Rank)
		case policy.SketchClusters:
			h.groups = &Clusters{need: need.Clusters, dim: dim}
		case policy.SketchHashes:
			h.hashes = NewHashes(dim, need.Bits, need.Rank/need.Bits)
		case policy.SketchProduct:
			h.product = NewProduct(dim, need.Parts, need.Bits, need.Iters)
			h.product.first, h.product.arrange, h.product.always = need.First, need.Balanced, need.Always
			if need.ValueParts > 0 {
				h.values = NewProduct(need.ValueDim, need.ValueParts, need.Bits, need.Iters)
			}
		}
	}
	return x
}

// Head is the part of a KV head.
func (x *Index) Head(kvHead int) *Head { return &x.heads[kvHead] }

// Reset empties the index: it is built again from the next view.
func (x *Index) Reset() {
	for i := range x.heads {
		x.heads[i].reset()
	}
	if x.joint != nil {
		x.joint.reset()
	}
	if x.indexed != nil {
		x.indexed.Cut(0)
	}
}

// Scales are those of small integers that tokens share, one a KV head, or one a channel, or the centroids of product codes; none where
// there are none.
func (x *Index) Scales() (all []float32) {
	for i := range x.heads {
		if p := x.heads[i].product; p != nil {
			all = append(all, p.Centroids()...)
			continue
		}
		all = append(all, x.heads[i].fixed.scale...)
	}
	return all
}

// Bytes is the memory of the layer's index.
func (x *Index) Bytes() (n int64) {
	if x.joint != nil {
		n = x.joint.bytes()
	}
	if x.indexed != nil {
		n = x.indexed.bytes()
	}
	for i := range x.heads {
		h := &x.heads[i]
		if h.columns != nil {
			n += h.columns.Bytes()
		}
		if h.codes != nil {
			n += h.codes.Bytes()
		}
		for _, b := range h.bounds {
			n += b.Bytes()
		}
		if h.product != nil {
			n += h.product.Bytes()
		}
		if h.values != nil {
			n += h.values.Bytes()
		}
		if h.groups != nil {
			n += h.groups.bytes()
		}
		if h.rounded != nil {
			n += h.rounded.Bytes()
		}
		if h.hashes != nil {
			n += h.hashes.Bytes()
		}
		n += int64(4*len(h.fixed.scale)) + h.followed.bytes()
	}
	return n
}

// Tokens is how many of the cache's tokens the index has seen.
func (h *sketch) Tokens() int { return h.tokens }

// SetMoving says that pages may lie elsewhere at each Refresh.
func (h *sketch) SetMoving(moving bool) { h.moving = moving }

// scansCache reports whether the cache itself is scanned.
func (h *sketch) scansCache() bool {
	return (h.need.Kind == policy.SketchDims || h.need.Kind == policy.SketchExact) && h.columns == nil
}

// ReadsFrom is the first of the tokens at positions pos, and more behind them, whose keys and values Refresh will read beside those of the
// newest: clusters are made of tokens that came long before. The number of all tokens = there is none.
func (h *Head) ReadsFrom(pos []int32, more int) int {
	if h.groups == nil {
		return len(pos) + more
	}
	return h.groups.reads(len(pos)+more, h.stale(pos))
}

// stale reports whether the index has tokens that are not at positions pos any more.
func (h *sketch) stale(pos []int32) bool {
	return h.tokens > len(pos) || h.tokens > 0 && pos[h.tokens-1] != h.last
}

// Refresh brings a head's sketch in line with the cache, as far as index most: new tokens are added; where tokens have gone
// it is built again. l shows a projecting policy the layer, kvHead is the head's number in it.
func (h *Head) Refresh(view *attention.View, pos []int32, most int, l *policy.Layer, kvHead int, p policy.Projector) {
	h.scan.of = nil
	h.refresh(view, pos, most, l, kvHead, p)
}

func (h *sketch) refresh(view *attention.View, pos []int32, most int, l *policy.Layer, kvHead int, p policy.Projector) {
	h.view = view
	if h.slots != nil {
		h.refreshSlots(pos, l, kvHead)
		return
	}
	if h.followed != nil && h.tokens > 0 {
		h.follow(pos, l.Prompt)
	} else if h.stale(pos) {
		h.reset()
	}
	if h.scansCache() {
		h.tiles.Refresh(view, h.tokens == 0 || h.moving)
	}
	if h.tokens == 0 {
		h.start(len(pos), l, kvHead, p)
	}
	if h.groups != nil && len(pos) > h.tokens {
		h.groups.refresh(view, len(pos))
		h.tokens = len(pos)
	}
	if h.scansCache() && h.rounded == nil || h.need.Kind == policy.SketchJoint && h.rounded == nil || h.need.Kind == policy.SketchIndex {
		h.tokens = len(pos)
	}
	for to := min(len(pos), most); h.tokens < to; {
		h.add(to)
	}
	if h.tokens > 0 {
		h.last = pos[h.tokens-1]
	}
	if h.followed != nil {
		h.followed.pos = append(h.followed.pos, pos[len(h.followed.pos):h.tokens]...)
	}
}

func (h *sketch) reset() {
	h.tokens, h.fixed.scale = 0, h.fixed.scale[:0]
	h.followed.forget()
	if h.columns != nil {
		h.columns.Reset()
	}
	if h.codes != nil {
		h.codes.Reset()
	}
	for _, b := range h.bounds {
		b.Reset()
	}
	if h.product != nil {
		h.product.Reset()
	}
	if h.values != nil {
		h.values.Reset()
	}
	if h.groups != nil {
		h.groups.reset()
	}
	if h.rounded != nil {
		h.rounded.Reset()
	}
	if h.hashes != nil {
		h.hashes.Reset()
	}
}

// start prepares what a sketch fixes once: scales over the prompt's keys, the projection.
func (h *sketch) start(n int, l *policy.Layer, kvHead int, p policy.Projector) {
	if projects(&h.need) {
		h.fixed.matrix = make([]float32, h.need.Rank*h.dim)
		p.Project(l, kvHead, h.fixed.matrix)
		return
	}
	if h.product != nil {
		h.train(n, l.Pos[kvHead])
		return
	}
	if h.hashes != nil {
		h.hashed(l, kvHead, p)
		return
	}
	if h.codes == nil || h.need.Scale == policy.ScaleToken {
		return
	}
	h.fixed.scale = append(h.fixed.scale[:0], make([]float32, map[bool]int{true: h.dim, false: 1}[h.need.Scale == policy.ScaleChannel])...)
	for i := 0; i < n; {
		panel, m := h.scratch.reader.Panel(h.view, i, n)
		for d := range h.dim {
			at := d % len(h.fixed.scale)
			h.fixed.scale[at] = max(h.fixed.scale[at], kernels.MaxAbs(panel[d*kernels.PanelCols:][:m]))
		}
		i += m
	}
	for i := range h.fixed.scale {
		h.fixed.scale[i] /= kvpage.MostCode(h.elem())
	}
}

// add takes some of the tokens from h.tokens to n-1 into the sketch: up to 64 from the start of a tile on, else one.
func (h *sketch) add(n int) {
	m := min(kernels.PanelCols, n-h.tokens)
	if h.tokens%kvpage.Tile != 0 {
		m = min(m, kvpage.Tile-h.tokens%kvpage.Tile)
	}
	if cap(h.scratch.keys) < kernels.PanelCols*h.dim {
		h.scratch.keys = make([]float32, kernels.PanelCols*h.dim)
		h.scratch.code = make([]int8, h.dim)
	}
	keys := h.scratch.keys[:m*h.dim]
	h.scratch.reader.Keys(h.view, h.tokens, h.tokens+m, keys)
	if h.rounded != nil {
		h.rounded.Put(keys, m)
	}
	if h.product != nil {
		h.product.Put(keys, m)
		if h.values != nil {
			h.scratch.values = sized(h.scratch.values, m*h.need.ValueDim)
			h.scratch.reader.Values(h.view, h.tokens, h.tokens+m, h.scratch.values)
			h.values.Put(h.scratch.values, m)
		}
		h.tokens += m
		return
	}
	if h.hashes != nil {
		h.hashes.Put(keys, m)
		h.tokens += m
		return
	}
	for i := range m {
		h.addKey(h.tokens+i, keys[i*h.dim:(i+1)*h.dim])
	}
	h.tokens += m
}

// addKey puts one key into the sketch as token i.
func (h *sketch) addKey(i int, key []float32) {
	switch h.need.Kind {
	case policy.SketchBounds:
		for _, b := range h.bounds {
			b.Add(key, 1, 1)
		}
	case policy.SketchInt8, policy.SketchInt4:
		scale := h.quantise(h.project(key))
		h.codes.Put(i, h.scratch.code[:h.codes.dim])
		if h.need.Scale == policy.ScaleToken {
			h.codes.PutScale(i, scale)
		}
	case policy.SketchHalf, policy.SketchExact, policy.SketchDims:
		if h.columns != nil { // else the cache itself is scanned
			h.columns.Put(i, key)
		}
	case policy.SketchProduct:
		h.product.PutAt([]int32{int32(i)}, key)
	case policy.SketchProjected:
		h.columns.Put(i, h.project(key))
	}
}

// project is a key times the projection, where there is one.
func (h *sketch) project(key []float32) []float32 {
	if len(h.fixed.matrix) == 0 {
		return key
	}
	h.scratch.turned = sized(h.scratch.turned, h.need.Rank)
	for r := range h.need.Rank {
		h.scratch.turned[r] = kernels.Dot(h.fixed.matrix[r*h.dim:(r+1)*h.dim], key)
	}
	return h.scratch.turned
}

// projects reports whether a sketch is of keys times a matrix, each KV head's by itself.
func projects(need *policy.Sketch) bool {
	return need.Kind == policy.SketchProjected || need.Kind == policy.SketchInt4 && need.Rank > 0
}

// codedDim is how many numbers of a key of dim numbers small integers are made of.
func codedDim(need *policy.Sketch, dim int) int {
	if projects(need) {
		return need.Rank
	}
	return dim
}

// elem is the type of a low-bit sketch.
func (h *sketch) elem() kvpage.Elem {
	if h.need.Kind == policy.SketchInt4 {
		return kvpage.I4
	}
	return kvpage.I8
}

// quantise turns a key into integers, saturating where the scale is fixed; it returns the scale where it is the token's own.
func (h *sketch) quantise(key []float32) (scale float32) {
	elem := h.elem()
	if h.need.Scale != policy.ScaleToken {
		kernels.Quantise(h.scratch.code, key, h.fixed.scale, kvpage.MostCode(elem))
		return 0
	}
	scale = kernels.MaxAbs(key) / kvpage.MostCode(elem)
	h.scratch.scale[0] = scale
	kernels.Quantise(h.scratch.code[:len(key)], key, h.scratch.scale[:], kvpage.MostCode(elem))
	return scale
}

// Dot implements policy.Scorer.
func (h *Head) Dot(_ int, q []float32, rows int, dst []float32) {
	h.countDims(h.dim)
	if h.columns != nil {
		h.columns.Score(dst, q, rows)
		return
	}
	h.scratch.turned = h.tiles.Dot(h.scratch.turned, dst, q, rows, h.dim, h.view.Tokens())
}

// Dims implements policy.Scorer: a row of a tile is 16 tokens of one dimension, so only the wanted rows are read.
func (h *Head) Dims(_ int, dims []int32, q []float32, rows int, dst []float32) {
	h.countDims(len(dims))
	few := (len(dims) + 15) &^ 15
	h.scratch.sums = sized(h.scratch.sums, rows*few)
	clear(h.scratch.sums)
	for r := range rows {
		for i, d := range dims {
			h.scratch.sums[r*few+i] = q[r*h.dim+int(d)]
		}
	}
	if h.columns != nil {
		h.columns.ScoreDims(dst, dims, h.scratch.sums, rows, few)
		return
	}
	h.scratch.turned = h.tiles.Dims(h.scratch.turned, dst, h.scratch.sums, rows, dims, few, h.dim, h.view.Tokens())
}

// Approx implements policy.Scorer.
func (h *Head) Approx(_ int, q []float32, rows int, dst []float32) {
	h.countApprox()
	switch {
	case h.product != nil:
		h.product.Score(dst, q, rows)
		return
	case h.codes == nil:
		h.columns.Score(dst, q, rows)
		return
	}
	h.scanned(q, rows, dst)
}

// Listed implements policy.Scorer.
func (h *Head) Listed(_ int, tokens []int32, q []float32, rows int, dst []float32) {
	h.countListed(len(tokens))
	if h.rounded != nil {
		h.rounded.Score(dst, tokens, q, rows)
		return
	}
	h.scratch.listed = sized(h.scratch.listed, h.dim)
	for i, t := range tokens {
		h.scratch.reader.Keys(h.view, int(t), int(t)+1, h.scratch.listed)
		for r := range rows {
			dst[r*len(tokens)+i] = kernels.Dot(q[r*h.dim:(r+1)*h.dim], h.scratch.listed)
		}
	}
}

// Clusters implements policy.Scorer.
func (h *Head) Clusters(int) *policy.Clusters { return &h.groups.view }

// Trained implements policy.Scorer.
func (h *Head) Trained(int) bool {
	return (h.product == nil || h.product.Trained()) && (h.hashes == nil || h.hashes.Trained())
}

// KeyScales implements policy.Scorer.
func (h *Head) KeyScales(_ int, dst []float32) { copy(dst, h.fixed.scale) }

// Products implements policy.Scorer.
func (h *Head) Products(_ int, q []int8, dst []int32) {
	h.countApprox()
	h.scan.q = append(append(h.scan.q[:0], q...), make([]int8, h.codes.QueryDim()-len(q))...)
	h.codes.Products(dst, h.scan.q)
}
