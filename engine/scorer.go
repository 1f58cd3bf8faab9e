package engine

import (
	"fmt"
	"math"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/policy"
)

// scorer answers a selecting policy's questions about the keys of one layer of one session (policy.Scorer). It keeps the
// sketch that the policy declared, builds it from the cache when the policy first asks, and adds each new token.
type scorer struct {
	need  policy.Sketch
	dim   int
	views []attention.View // of the layer, refreshed at each step
	heads []headSketch
	run   func(n int, fn func(worker, i int)) // shares columns among threads; nil = one
	key   []float32
	codes []int8
	tile  [][]byte
	masks []uint16
	sums  []float32
	turn  []float32
}

// headSketch is the sketch of one KV head.
type headSketch struct {
	tokens int // of the cache that are in the sketch
	last   int32
	store  *kvmanager.Sketch
	bounds []*kvmanager.BlockBounds
	scale  []float32 // per token, per channel or one, as the sketch's granularity says
	matrix []float32 // [Rank, dim] of a projected sketch
}

func newScorer(need policy.Sketch, kvHeads, dim int) *scorer {
	s := &scorer{need: need, dim: dim, heads: make([]headSketch, kvHeads), key: make([]float32, dim), codes: make([]int8, dim)}
	for g := range s.heads {
		h := &s.heads[g]
		switch need.Kind {
		case policy.SketchBounds:
			for _, b := range need.Blocks {
				h.bounds = append(h.bounds, kvmanager.NewBlockBounds(b, dim))
			}
		case policy.SketchInt8:
			h.store = kvmanager.NewSketch(kvpage.I8, dim)
		case policy.SketchInt4:
			h.store = kvmanager.NewSketch(kvpage.I4, dim)
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
		for _, b := range h.bounds {
			n += b.Bytes()
		}
		n += int64(4 * len(h.scale))
	}
	return n
}

// refresh brings the sketches in line with the cache: new tokens are added; where tokens have gone they are built anew.
func (s *scorer) refresh(views []attention.View, l *policy.Layer, p policy.Projector) {
	s.views = views
	for g := range s.heads {
		h, pos := &s.heads[g], l.Pos[g]
		if h.tokens > len(pos) || (h.tokens > 0 && pos[h.tokens-1] != h.last) {
			h.reset()
		}
		if h.tokens == 0 {
			s.start(h, g, l, p)
		}
		for i := h.tokens; i < len(pos); i++ {
			s.readKey(g, i, s.key)
			s.add(h, i)
		}
		if h.tokens = len(pos); h.tokens > 0 {
			h.last = pos[h.tokens-1]
		}
	}
}

func (h *headSketch) reset() {
	h.tokens, h.scale = 0, h.scale[:0]
	if h.store != nil {
		h.store.Reset()
	}
	for _, b := range h.bounds {
		b.Reset()
	}
}

// start prepares what a sketch fixes once: scales over the prompt's keys, the projection.
func (s *scorer) start(h *headSketch, g int, l *policy.Layer, p policy.Projector) {
	if s.need.Kind == policy.SketchProjected {
		h.matrix = make([]float32, s.need.Rank*s.dim)
		p.Project(l, g, h.matrix)
		return
	}
	if s.low() == 0 || s.need.Scale == policy.ScaleToken {
		return
	}
	h.scale = append(h.scale[:0], make([]float32, map[bool]int{true: s.dim, false: 1}[s.need.Scale == policy.ScaleChannel])...)
	for i := range l.Pos[g] {
		s.readKey(g, i, s.key)
		for d, x := range s.key {
			at := d % len(h.scale)
			h.scale[at] = max(h.scale[at], float32(math.Abs(float64(x))))
		}
	}
	for i := range h.scale {
		h.scale[i] /= float32(s.low())
	}
}

// low is the largest integer of a low-bit sketch; 0 for others.
func (s *scorer) low() int {
	switch s.need.Kind {
	case policy.SketchInt8:
		return 127
	case policy.SketchInt4:
		return 7
	}
	return 0
}

// readKey reads one token's key.
func (s *scorer) readKey(g, i int, dst []float32) {
	v := &s.views[g]
	kvpage.ReadK(v.Layout, v.Pages[i/v.Layout.Tokens].Data, i%v.Layout.Tokens, dst)
}

// add puts the key in s.key into the sketch as token i.
func (s *scorer) add(h *headSketch, i int) {
	switch s.need.Kind {
	case policy.SketchBounds:
		for _, b := range h.bounds {
			b.Add(s.key)
		}
	case policy.SketchInt8, policy.SketchInt4:
		s.quantise(h)
		h.store.PutCodes(i, s.codes)
	case policy.SketchHalf:
		h.store.Put(i, s.key)
	case policy.SketchProjected:
		s.turn = append(s.turn[:0], make([]float32, s.need.Rank)...)
		for r := range s.need.Rank {
			s.turn[r] = kernels.Dot(h.matrix[r*s.dim:(r+1)*s.dim], s.key)
		}
		h.store.Put(i, s.turn)
	}
}

// quantise turns the key into integers, saturating where the scale is fixed.
func (s *scorer) quantise(h *headSketch) {
	most := float32(s.low())
	if s.need.Scale == policy.ScaleToken {
		h.scale = append(h.scale, kernels.MaxAbs(s.key)/most)
	}
	for d, x := range s.key {
		scale := h.scale[len(h.scale)-1]
		if s.need.Scale == policy.ScaleChannel {
			scale = h.scale[d]
		}
		c := float32(0)
		if scale > 0 {
			c = float32(math.RoundToEven(float64(x / scale)))
		}
		s.codes[d] = int8(max(-most, min(most, c)))
	}
}

// Dot implements policy.Scorer.
func (s *scorer) Dot(kvHead int, q []float32, rows int, dst []float32) {
	s.overPages(kvHead, q, rows, dst, s.dim, func(tile []byte) []byte { return tile })
}

// Dims implements policy.Scorer: a row of a tile is 16 tokens of one dimension, so only the wanted rows are read.
func (s *scorer) Dims(kvHead int, dims []int32, q []float32, rows int, dst []float32) {
	n := s.views[kvHead].Tokens()
	clear(dst[:rows*n])
	one := make([]float32, rows)
	if cap(s.sums) < rows*n {
		s.sums = make([]float32, rows*n+rows*n/4)
	}
	for _, d := range dims {
		for r := range rows {
			one[r] = q[r*s.dim+int(d)]
		}
		size := s.views[kvHead].Layout.KTileBytes() / s.dim
		s.overPages(kvHead, one, rows, s.sums[:rows*n], 1, func(tile []byte) []byte { return tile[int(d)*size : (int(d)+1)*size] })
		kernels.Add(dst[:rows*n], s.sums[:rows*n])
	}
}

// overPages multiplies q [rows, dim] with a part of every tile of the cache.
func (s *scorer) overPages(kvHead int, q []float32, rows int, dst []float32, dim int, part func(tile []byte) []byte) {
	v := &s.views[kvHead]
	n := v.Tokens()
	s.tile, s.masks = s.tile[:0], s.masks[:0]
	for i := range v.Pages {
		p := &v.Pages[i]
		for t := 0; t*kvpage.Tile < p.N; t++ {
			s.tile = append(s.tile, part(v.Layout.KTile(p.Data, t)))
			s.masks = append(s.masks, uint16(1<<min(16, p.N-t*kvpage.Tile)-1))
		}
	}
	width := len(s.tile) * kvpage.Tile
	if cap(s.turn) < rows*(width+dim) {
		s.turn = make([]float32, rows*(width+dim)+width)
	}
	for h := 0; h < rows; h += kernels.GroupHeads {
		m := min(kernels.GroupHeads, rows-h)
		out, turned := s.turn[:m*width], s.turn[m*width:m*(width+dim)]
		for i := range m {
			for d := range dim {
				turned[d*m+i] = q[(h+i)*dim+d]
			}
		}
		kernels.ScoreTiles(kernels.KVElem(v.Layout.K), out, turned, s.tile, s.masks, m, dim)
		for i := range m {
			copy(dst[(h+i)*n:(h+i+1)*n], out[i*width:])
		}
	}
}

// Bounds implements policy.Scorer.
func (s *scorer) Bounds(kvHead, block int, only []int32, q []float32, rows int, dst []float32) {
	for _, b := range s.heads[kvHead].bounds {
		if b.Block != block {
			continue
		}
		if only == nil {
			b.Score(dst, q, rows)
			return
		}
		n := b.Blocks()
		if cap(s.sums) < rows*n {
			s.sums = make([]float32, rows*n+rows*n/4)
		}
		b.Score(s.sums[:rows*n], q, rows)
		for r := range rows {
			for i, j := range only {
				dst[r*len(only)+i] = s.sums[r*n+int(j)]
			}
		}
		return
	}
	panic(fmt.Sprintf("engine: bounds of blocks of %d tokens were not declared", block))
}

// Approx implements policy.Scorer.
func (s *scorer) Approx(kvHead int, q []float32, rows int, dst []float32) {
	h := &s.heads[kvHead]
	n := h.store.Columns()
	if s.low() != 0 && s.need.Scale == policy.ScaleChannel {
		s.sums = append(s.sums[:0], q[:rows*s.dim]...)
		for i := range s.sums {
			s.sums[i] *= h.scale[i%s.dim]
		}
		q = s.sums
	}
	s.score(h.store, dst, q, rows)
	switch {
	case s.low() == 0 || s.need.Scale == policy.ScaleChannel:
	case s.need.Scale == policy.ScaleHead:
		kernels.Scale(dst[:rows*n], h.scale[0])
	default:
		for r := range rows {
			kernels.Mul(dst[r*n:(r+1)*n], h.scale[:n])
		}
	}
}

// score multiplies with every column.
func (s *scorer) score(store *kvmanager.Sketch, dst, q []float32, rows int) {
	store.Score(dst, q, rows, 0, store.Columns())
}

// KeyScales implements policy.Scorer.
func (s *scorer) KeyScales(kvHead int, dst []float32) { copy(dst, s.heads[kvHead].scale) }

// Products implements policy.Scorer. Float32 sums of integer products are exact below 2^24, which 127·127·dim stays under
// for heads up to 1,040 wide.
func (s *scorer) Products(kvHead int, q []int8, dst []int32) {
	h := &s.heads[kvHead]
	n := h.store.Columns()
	if cap(s.sums) < n+s.dim {
		s.sums = make([]float32, n+s.dim+n/4)
	}
	out, x := s.sums[:n], s.sums[n:n+s.dim]
	for i, c := range q {
		x[i] = float32(c)
	}
	s.score(h.store, out, x, 1)
	for i, v := range out {
		dst[i] += int32(v)
	}
}
