package policy

import (
	"math"

	"terrace/internal/kernels"
)

// cec scores keys in low precision (HillInfer's CSD-based Evaluation Configuration, algorithms.md 1.8): raw products, no
// exponent, no 1/√d. For integers, Σ_h q_h·k_g(h) = Σ_g (Σ_{h of g} q_h)·k_g, so one vector a KV head is scored; the keys'
// scales are multiplied into it, and all of it is quantised to 8 bits with one scale. A token's score is then one exact
// integer Σ q̂·k̂, at most 127·127·KVHeads·KeyDim, the same on host and drive.
//
// Product codes (SketchProduct): each two numbers of a key are the nearest of 16 centroids, found by k-means among the prompt's keys;
// a score is a float32 sum of looked-up products, added in one order wherever it is made.
type cec struct {
	kind   SketchKind
	scale  SketchScale
	scales []float32
	query  TokenQuery
	sums   []int32
	part   []float32
}

// TokenQuery is what host and drive score a layer's tokens with.
type TokenQuery struct {
	Kind SketchKind
	// Int8 is the query [KVHeads*KeyDim] for integer keys; the score of a token is Σ Int8·key, an int32.
	Int8 []int8
	// Float is the query [KVHeads*KeyDim], rounded to half precision, for SketchHalf and SketchProduct; the products are added in float32 in
	// order of KV head and dimension.
	Float []float32
	// Shift is the power of two that scores are divided by before they are rounded to half precision for a score block.
	Shift int
}

// floats reports whether scores are sums of floats rather than of integers.
func (c *cec) floats() bool { return c.kind == SketchHalf || c.kind == SketchProduct }

// sketch is what is scored, of keys of dim numbers.
func (c *cec) sketch(dim int) Sketch {
	if c.kind == SketchProduct {
		return Sketch{Kind: c.kind, Parts: max(dim/2, 1), Bits: 4, Iters: 8, Sample: 1024, Always: true}
	}
	return Sketch{Kind: c.kind, Scale: c.scale}
}

// question fills q for a layer's newest query over KV heads from..to-1.
func (c *cec) question(l *Layer, from, to int, q *TokenQuery) {
	q.Kind = c.kind
	q.Float = c.grouped(l, from, to, q.Float)
	if c.floats() {
		q.Shift = 0
		for i, v := range q.Float {
			q.Float[i] = kernels.RoundHalf(v)
		}
		return
	}
	q.Int8 = quantize(q.Float, q.Int8)
	q.Shift = scoreShift((to - from) * l.KeyDim)
}

// grouped fills dst with the sum of each group's queries times the keys' scales, for KV heads from..to-1.
func (c *cec) grouped(l *Layer, from, to int, dst []float32) []float32 {
	d := l.KeyDim
	dst = sized(dst, (to-from)*d)
	clear(dst)
	for g := from; g < to; g++ {
		row := dst[(g-from)*d : (g-from+1)*d]
		queries := l.queries(g)
		for h := range l.Group() {
			for i, v := range queries[h*d : (h+1)*d] {
				row[i] += v
			}
		}
		c.applyScales(l, g, row)
	}
	return dst
}

// applyScales multiplies a query by the scales of a KV head's keys.
func (c *cec) applyScales(l *Layer, g int, q []float32) {
	if c.floats() {
		return
	}
	n := 1
	if c.scale == ScaleChannel {
		n = l.KeyDim
	}
	c.scales = sized(c.scales, n)
	l.Scores.KeyScales(g, c.scales)
	for i := range q {
		q[i] *= c.scales[i%n]
	}
}

// sum fills dst with the scores over KV heads from..to-1 of every token, rounded as a score block carries them.
func (c *cec) sum(l *Layer, from, to int, dst []float32) {
	c.question(l, from, to, &c.query)
	c.score(l.Scores, &c.query, from, to, l.KeyDim, dst)
}

// score fills dst with the scores, by a query over KV heads from..to-1 of d numbers, of the keys that s knows.
func (c *cec) score(s Scorer, q *TokenQuery, from, to, d int, dst []float32) {
	if c.floats() {
		clear(dst)
		c.part = sized(c.part, len(dst))
		for g := from; g < to; g++ {
			s.Approx(g, q.Float[(g-from)*d:(g-from+1)*d], 1, c.part)
			for i, x := range c.part {
				dst[i] += x
			}
		}
	} else {
		c.sums = sized(c.sums, len(dst))
		clear(c.sums)
		for g := from; g < to; g++ {
			s.Products(g, q.Int8[(g-from)*d:(g-from+1)*d], c.sums)
		}
		for i, x := range c.sums {
			dst[i] = float32(x)
		}
	}
	RoundScores(dst, q.Shift)
}

// head fills dst with the products of one query head, in the units of q·k.
func (c *cec) head(l *Layer, h int, dst []float32) {
	d, g := l.KeyDim, h/l.Group()
	c.query.Float = append(c.query.Float[:0], l.Query(h)...)
	if c.floats() {
		l.Scores.Approx(g, c.query.Float[:d], 1, dst)
		return
	}
	c.applyScales(l, g, c.query.Float)
	unit := absMax(c.query.Float) / 127
	c.query.Int8 = quantize(c.query.Float, c.query.Int8)
	c.sums = sized(c.sums, len(dst))
	clear(c.sums)
	l.Scores.Products(g, c.query.Int8, c.sums)
	for i, s := range c.sums {
		dst[i] = float32(s) * unit
	}
}

func absMax(x []float32) float32 {
	var top float32
	for _, v := range x {
		top = max(top, float32(math.Abs(float64(v))))
	}
	return top
}

// quantize writes x in 8 bits, symmetric around 0 with one scale (the largest magnitude is 127), rounding half to even.
func quantize(x []float32, dst []int8) []int8 {
	dst = sized(dst, len(x))
	top := absMax(x)
	if top == 0 {
		clear(dst)
		return dst
	}
	inv := 127 / top
	for i, v := range x {
		dst[i] = int8(math.RoundToEven(float64(v * inv)))
	}
	return dst
}

// scoreShift is the smallest power of two that brings 127·127·width into the range of half precision.
func scoreShift(width int) int {
	shift := 0
	for bound := 127 * 127 * width; bound>>shift > 65504; shift++ {
	}
	return shift
}

// RoundScores divides scores by 2^shift and rounds them to half precision, as a score block of two bytes a score carries
// them; applied to scores that came in such a block it changes nothing.
func RoundScores(scores []float32, shift int) {
	scale := float32(math.Ldexp(1, -shift))
	for i, s := range scores {
		scores[i] = kernels.RoundHalf(s * scale)
	}
}
