package retrieval

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"terrace/internal/kernels"
)

// slow is a sequence's layer in float64, computed from its random numbers alone: what is read and what comes out by the papers' formulas
// and plain sorts, to hold the fast code against. Keys and values are rounded to f16 as they are stored.
type slow struct {
	x     *scenarioText
	shape *Shape
	layer int
}

func slowly(x *scenarioText, layer int) *slow { return &slow{x, &x.f.o.Shape, layer} }

// row is a KV head's key or value of a position.
func (s *slow) row(kind uint64, g int, pos int32) []float64 {
	kv := s.shape.kv(s.layer)
	dim := kv.KeyDim
	if kind == ofValues {
		dim = kv.ValueDim
	}
	all := s.x.numbers(kind, s.shape.owner(s.layer), pos, kv.Heads*dim)
	out := make([]float64, dim)
	for d := range out {
		out[d] = float64(kernels.RoundHalf(all[g*dim+d]))
	}
	return out
}

func (s *slow) key(g int, pos int32) []float64   { return s.row(ofKeys, g, pos) }
func (s *slow) value(g int, pos int32) []float64 { return s.row(ofValues, g, pos) }

// query is a head's of the row at a position.
func (s *slow) query(h int, pos int32) []float64 {
	dim := s.shape.kv(s.layer).KeyDim
	all := s.x.numbers(ofQueries, s.layer, pos, s.shape.queryWidth(s.layer))
	out := make([]float64, dim)
	for d := range out {
		out[d] = float64(all[h*dim+d])
	}
	return out
}

func (s *slow) group() int { return s.shape.Layers.Group(s.layer) }

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// weights are a head's softmax weights of the row at a position over tokens.
func (s *slow) weights(h int, at int32, tokens []int32) []float64 {
	scores, q, score := make([]float64, len(tokens)), s.query(h, at), s.shape.Scores[s.layer]
	for i, pos := range tokens {
		scores[i] = float64(score.Scale) * dot(q, s.key(h/s.group(), pos))
		if window := s.shape.kv(s.layer).Window; pos > at || window > 0 && at-pos >= int32(window) {
			scores[i] = math.Inf(-1)
		}
	}
	if score.Sinks != nil {
		return softmax(append(scores, float64(score.Sinks[h])))[:len(tokens)]
	}
	return softmax(scores)
}

func softmax(scores []float64) []float64 {
	top, sum := slices.Max(scores), 0.0
	for i, x := range scores {
		scores[i] = math.Exp(x - top)
		sum += scores[i]
	}
	for i := range scores {
		scores[i] /= sum
	}
	return scores
}

// attention is a head's output of the row at a position over tokens.
func (s *slow) attention(h int, at int32, tokens []int32) []float64 {
	out := make([]float64, s.shape.kv(s.layer).ValueDim)
	for i, w := range s.weights(h, at, tokens) {
		for d, v := range s.value(h/s.group(), tokens[i]) {
			out[d] += w * v
		}
	}
	return out
}

// upTo are the positions below n.
func upTo(n int32) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// best are the places of the k highest scores, ascending; the lower place wins ties.
func best(scores []float64, k int) []int {
	at := make([]int, len(scores))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	at = at[:min(k, len(at))]
	slices.Sort(at)
	return at
}

// same reports whether picks are those of the highest scores, where scores that differ by less than their rounding may change places.
func same(got, want []int, scores []float64) bool {
	if slices.Equal(got, want) {
		return true
	}
	if len(got) != len(want) {
		return false
	}
	a, b := 0.0, 0.0
	for i := range got {
		if got[i] < 0 || got[i] >= len(scores) || i > 0 && got[i] <= got[i-1] {
			return false
		}
		a, b = a+scores[got[i]], b+scores[want[i]]
	}
	return math.Abs(a-b) <= 1e-5*(math.Abs(a)+math.Abs(b))
}

// compareOutput holds a step's attention output of a layer against that over what the reference says was read, per KV head, times share
// plus the rest of the mean of all values; share nil = all is attention. out is the layer's part of scenarioText.out.
func (s *slow) compareOutput(t *testing.T, out []float32, at int32, read [][]int32, share []float64) {
	t.Helper()
	kv := s.shape.kv(s.layer)
	for h := range s.shape.Layers[s.layer].Heads {
		g := h / s.group()
		want := s.attention(h, at, read[g])
		if share != nil {
			mean := make([]float64, kv.ValueDim)
			for _, pos := range upTo(at + 1) {
				for d, v := range s.value(g, pos) {
					mean[d] += v / float64(at+1)
				}
			}
			for d := range want {
				want[d] = share[h]*want[d] + (1-share[h])*mean[d]
			}
		}
		for d, w := range want {
			if got := float64(out[h*kv.ValueDim+d]); math.Abs(got-w) > 2e-3*(1+math.Abs(w)) {
				t.Fatalf("layer %d head %d, number %d: %g, want %g", s.layer, h, d, got, w)
			}
		}
	}
}

// layerOut is a layer's part of what a step has computed; layers are alike.
func (x *scenarioText) layerOut(layer int) []float32 {
	n := x.f.o.Shape.outWidth(layer)
	return x.out[layer*n : (layer+1)*n]
}

// places turns positions into numbers in a list of them; -1 = it is not there.
func placesOf(positions, in []int32) []int {
	out := make([]int, len(positions))
	for i, p := range positions {
		at, found := slices.BinarySearch(in, p)
		if out[i] = at; !found {
			out[i] = -1
		}
	}
	return out
}

// sumOfExponents is what a head's softmax of the row at a position over tokens divides by.
func (s *slow) sumOfExponents(h int, at int32, tokens []int32) (sum float64) {
	for _, pos := range tokens {
		sum += expOf(float64(s.shape.Scores[s.layer].Scale) * dot(s.query(h, at), s.key(h/s.group(), pos)))
	}
	return sum
}

func expOf(x float64) float64 { return math.Exp(x) }
