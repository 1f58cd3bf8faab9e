package engine

import (
	"fmt"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/policy"
)

// scorer answers a selecting policy's questions about the keys of one layer of one session (policy.Scorer). It keeps the
// sketch that the policy declared, builds it from the cache at the end of the prompt, and adds each new token. KV heads
// share nothing, so that different heads may be asked at the same time.
type scorer struct{ heads []headScorer }

// headScorer is the part of one KV head. It is a policy.Scorer that knows one head and calls it 0.
type headScorer struct {
	need   policy.Sketch
	dim    int
	view   *attention.View   // refreshed at each step
	tokens int               // of the cache that are in the sketch
	last   int32             // position of the newest of them
	store  *kvmanager.Sketch // of half and projected keys, and of exact ones that lie below
	low    *kvmanager.Codes  // of 8-bit and 4-bit keys
	moving bool              // pages may have gone elsewhere since the last step
	hot    *hotTokens        // the tokens that are in the sketch, where a drive scores the others; nil = all
	bounds []*kvmanager.BlockBounds
	scale  []float32 // per channel or one, where the sketch's scales are fixed by the prompt
	matrix []float32 // [Rank, dim] of a projected sketch

	reader kvmanager.Reader
	tiles  tileList
	keys   []float32
	codes  []int8
	sums   []float32
	turn   []float32
	scan   scan
}

func newScorer(need policy.Sketch, kvHeads, dim int) *scorer {
	s := &scorer{heads: make([]headScorer, kvHeads)}
	for g := range s.heads {
		h := &s.heads[g]
		h.need, h.dim = need, dim
		switch need.Kind {
		case policy.SketchBounds:
			for _, b := range need.Blocks {
				h.bounds = append(h.bounds, kvmanager.NewBlockBounds(b, dim))
			}
		case policy.SketchInt8:
			h.low = kvmanager.NewCodes(kvpage.I8, dim)
		case policy.SketchInt4:
			h.low = kvmanager.NewCodes(kvpage.I4, dim)
		case policy.SketchHalf:
			h.store = kvmanager.NewSketch(kvpage.F16, dim)
		case policy.SketchProjected:
			h.store = kvmanager.NewSketch(kvpage.F16, need.Rank)
		}
	}
	return s
}

// bytes is the memory of the layer's sketches.
func (s *scorer) bytes() (n int64) {
	for i := range s.heads {
		h := &s.heads[i]
		if h.store != nil {
			n += h.store.Bytes()
		}
		if h.low != nil {
			n += h.low.Bytes()
		}
		for _, b := range h.bounds {
			n += b.Bytes()
		}
		n += int64(4 * len(h.scale))
	}
	return n
}

// keepBelow has a head that holds nothing yet hand what is full to a stream on the lower tier; exact keys are copied there in
// their own type.
func (h *headScorer) keepBelow(t *kvmanager.TileStream, keys kvpage.Elem) {
	if h.need.Kind == policy.SketchExact {
		h.store = kvmanager.NewSketch(keys, h.dim)
	}
	if h.store != nil {
		h.store.KeepBelow(t)
	}
	for _, b := range h.bounds {
		b.KeepBelow(t)
	}
}

// scansCache reports whether the cache itself is scanned.
func (h *headScorer) scansCache() bool {
	return h.need.Kind == policy.SketchDims || h.need.Kind == policy.SketchExact && h.store == nil
}

// refresh brings a head's sketch in line with the cache, as far as index most: new tokens are added; where tokens have gone
// it is built anew. l shows a projecting policy the layer, kvHead is the head's number in it.
func (h *headScorer) refresh(view *attention.View, pos []int32, most int, l *policy.Layer, kvHead int, p policy.Projector) {
	h.view, h.scan.of = view, nil
	if h.hot != nil {
		h.refreshHot(pos, l, kvHead)
		return
	}
	if h.tokens > len(pos) || (h.tokens > 0 && pos[h.tokens-1] != h.last) {
		h.reset()
	}
	if h.scansCache() {
		h.tiles.refresh(view, h.tokens == 0 || h.moving)
	}
	if h.tokens == 0 {
		h.start(len(pos), l, kvHead, p)
	}
	if h.scansCache() {
		h.tokens = len(pos)
	}
	for to := min(len(pos), most); h.tokens < to; {
		h.add(to)
	}
	if h.tokens > 0 {
		h.last = pos[h.tokens-1]
	}
}

func (h *headScorer) reset() {
	h.tokens, h.scale = 0, h.scale[:0]
	if h.store != nil {
		h.store.Reset()
	}
	if h.low != nil {
		h.low.Reset()
	}
	for _, b := range h.bounds {
		b.Reset()
	}
}

// start prepares what a sketch fixes once: scales over the prompt's keys, the projection.
func (h *headScorer) start(n int, l *policy.Layer, kvHead int, p policy.Projector) {
	if h.need.Kind == policy.SketchProjected {
		h.matrix = make([]float32, h.need.Rank*h.dim)
		p.Project(l, kvHead, h.matrix)
		return
	}
	if h.low == nil || h.need.Scale == policy.ScaleToken {
		return
	}
	h.scale = append(h.scale[:0], make([]float32, map[bool]int{true: h.dim, false: 1}[h.need.Scale == policy.ScaleChannel])...)
	for i := 0; i < n; {
		panel, m := h.reader.Panel(h.view, i, n)
		for d := range h.dim {
			at := d % len(h.scale)
			h.scale[at] = max(h.scale[at], kernels.MaxAbs(panel[d*kernels.PanelCols:][:m]))
		}
		i += m
	}
	for i := range h.scale {
		h.scale[i] /= kvpage.MostCode(h.elem())
	}
}

// add takes some of the tokens from h.tokens to n-1 into the sketch: up to 64 from the start of a tile on, else one.
func (h *headScorer) add(n int) {
	m := min(kernels.PanelCols, n-h.tokens)
	if h.tokens%kvpage.Tile != 0 {
		m = min(m, kvpage.Tile-h.tokens%kvpage.Tile)
	}
	if cap(h.keys) < kernels.PanelCols*h.dim {
		h.keys = make([]float32, kernels.PanelCols*h.dim)
		h.codes = make([]int8, h.dim)
	}
	keys := h.keys[:m*h.dim]
	h.reader.Keys(h.view, h.tokens, h.tokens+m, keys)
	for i := range m {
		h.addKey(h.tokens+i, keys[i*h.dim:(i+1)*h.dim])
	}
	h.tokens += m
}

// addKey puts one key into the sketch as token i.
func (h *headScorer) addKey(i int, key []float32) {
	switch h.need.Kind {
	case policy.SketchBounds:
		for _, b := range h.bounds {
			b.Add(key, 1, 1)
		}
	case policy.SketchInt8, policy.SketchInt4:
		scale := h.quantise(key)
		h.low.Put(i, h.codes)
		if h.need.Scale == policy.ScaleToken {
			h.low.PutScale(i, scale)
		}
	case policy.SketchHalf, policy.SketchExact:
		h.store.Put(i, key)
	case policy.SketchProjected:
		h.turn = sized(h.turn, h.need.Rank)
		for r := range h.need.Rank {
			h.turn[r] = kernels.Dot(h.matrix[r*h.dim:(r+1)*h.dim], key)
		}
		h.store.Put(i, h.turn)
	}
}

// elem is the type of a low-bit sketch.
func (h *headScorer) elem() kvpage.Elem {
	if h.need.Kind == policy.SketchInt4 {
		return kvpage.I4
	}
	return kvpage.I8
}

// quantise turns a key into integers, saturating where the scale is fixed; it returns the scale where it is the token's own.
func (h *headScorer) quantise(key []float32) (scale float32) {
	elem := h.elem()
	if h.need.Scale != policy.ScaleToken {
		kvpage.Quantise(elem, h.codes, key, h.scale)
		return 0
	}
	scale = kernels.MaxAbs(key) / kvpage.MostCode(elem)
	kvpage.Quantise(elem, h.codes, key, []float32{scale})
	return scale
}

// Dot implements policy.Scorer.
func (h *headScorer) Dot(_ int, q []float32, rows int, dst []float32) {
	if h.store != nil {
		h.store.Score(dst, q, rows)
		return
	}
	h.turn = h.tiles.multiply(h.turn, dst, q, rows, h.dim, h.view.Tokens())
}

// Dims implements policy.Scorer: a row of a tile is 16 tokens of one dimension, so only the wanted rows are read.
func (h *headScorer) Dims(_ int, dims []int32, q []float32, rows int, dst []float32) {
	few := (len(dims) + 15) &^ 15
	h.sums = sized(h.sums, rows*few)
	clear(h.sums)
	for r := range rows {
		for i, d := range dims {
			h.sums[r*few+i] = q[r*h.dim+int(d)]
		}
	}
	h.turn = h.tiles.multiplyRows(h.turn, dst, h.sums, rows, dims, few, h.dim, h.view.Tokens())
}

// Bounds implements policy.Scorer.
func (h *headScorer) Bounds(_, block int, only []int32, q []float32, rows int, dst []float32) {
	for _, b := range h.bounds {
		if b.Block != block {
			continue
		}
		if only == nil {
			b.Score(dst, q, rows)
			return
		}
		n := b.Blocks()
		h.sums = sized(h.sums, rows*n)
		b.Score(h.sums, q, rows)
		for r := range rows {
			for i, j := range only {
				dst[r*len(only)+i] = h.sums[r*n+int(j)]
			}
		}
		return
	}
	panic(fmt.Sprintf("engine: bounds of blocks of %d tokens were not declared", block))
}

// Approx implements policy.Scorer.
func (h *headScorer) Approx(_ int, q []float32, rows int, dst []float32) {
	if h.low == nil {
		h.store.Score(dst, q, rows)
		return
	}
	h.scanned(q, rows, dst)
}

// KeyScales implements policy.Scorer.
func (h *headScorer) KeyScales(_ int, dst []float32) { copy(dst, h.scale) }

// Products implements policy.Scorer.
func (h *headScorer) Products(_ int, q []int8, dst []int32) {
	h.scan.q = append(append(h.scan.q[:0], q...), make([]int8, h.low.QuestionDim()-len(q))...)
	h.low.Products(dst, h.scan.q)
}

// Dot implements policy.Scorer.
func (s *scorer) Dot(kvHead int, q []float32, rows int, dst []float32) {
	s.heads[kvHead].Dot(0, q, rows, dst)
}

// Dims implements policy.Scorer.
func (s *scorer) Dims(kvHead int, dims []int32, q []float32, rows int, dst []float32) {
	s.heads[kvHead].Dims(0, dims, q, rows, dst)
}

// Bounds implements policy.Scorer.
func (s *scorer) Bounds(kvHead, block int, only []int32, q []float32, rows int, dst []float32) {
	s.heads[kvHead].Bounds(0, block, only, q, rows, dst)
}

// Approx implements policy.Scorer.
func (s *scorer) Approx(kvHead int, q []float32, rows int, dst []float32) {
	s.heads[kvHead].Approx(0, q, rows, dst)
}

// KeyScales implements policy.Scorer.
func (s *scorer) KeyScales(kvHead int, dst []float32) { s.heads[kvHead].KeyScales(0, dst) }

// Products implements policy.Scorer.
func (s *scorer) Products(kvHead int, q []int8, dst []int32) { s.heads[kvHead].Products(0, q, dst) }

// sized returns buf with length n, its memory reused where it is large enough; the content is arbitrary.
func sized(buf []float32, n int) []float32 {
	if cap(buf) < n {
		buf = make([]float32, n+n/4)
	}
	return buf[:n]
}
