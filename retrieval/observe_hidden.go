package retrieval

import (
	"math"
	"slices"

	"terrace/policy"
)

func init() {
	RegisterObserver(policy.HiddenScores{}.Key(), func(t *Sequence, o policy.Observation) Observer {
		return &hiddenScores{t: t, by: o.(policy.HiddenScores).By, layers: make([]hiddenLayer, len(t.f.o.Shape.Layers))}
	})
}

// HiddenObserver is an Observer that sees the rows x [rows, Hidden] that a layer's attention projects from, behind its norm, before their
// queries.
type HiddenObserver interface {
	Observer
	Hidden(layer int, x []float32, pos []int32)
}

// WantsHidden reports whether a policy of a pass looks at the rows that a layer's attention projects from (HiddenObserver).
func WantsHidden(p *Pass, layer int) bool {
	for i := range p.Rows {
		if p.Rows[i].watched(layer) && len(p.Rows[i].Sequence.obs.hidden) > 0 {
			return true
		}
	}
	return false
}

// ObserveHidden shows the policies of a pass the rows x [rows, Hidden] that a layer's attention projects from, those of all rows.
func ObserveHidden(p *Pass, layer int, x []float32) {
	width, row := p.f.o.Shape.Hidden, 0
	for i := range p.Rows {
		r := &p.Rows[i]
		n := len(r.Pos)
		if r.watched(layer) && r.Sequence.Acts(layer) {
			for _, each := range r.Sequence.obs.hidden {
				each.Hidden(layer, x[row*width:(row+n)*width], r.Pos)
			}
		}
		row += n
	}
}

// hiddenScores are what a map gives the rows (policy.HiddenScores): 4·KVHeads bytes a token and layer.
type hiddenScores struct {
	t       *Sequence
	by      *policy.ScoreMap
	layers  []hiddenLayer
	scratch [][]float32 // of each thread
}

// hiddenLayer is what was seen of a layer.
type hiddenLayer struct {
	pos    []int32
	scores []float32 // [rows, KVHeads]
}

// Rows implements Observer.
func (*hiddenScores) Rows(int, []float32, []int32) {}

// Hidden implements HiddenObserver.
func (s *hiddenScores) Hidden(layer int, x []float32, pos []int32) {
	l, by, pool := &s.layers[layer], &s.by.Layers[layer], s.t.pool()
	seen, _ := slices.BinarySearch(l.pos, pos[0]) // rows that were taken back come again
	heads := by.Heads
	l.pos = append(l.pos[:seen], pos...)
	l.scores = slices.Grow(l.scores[:seen*heads], len(pos)*heads)[:(seen+len(pos))*heads]
	s.scratch = room(s.scratch, pool.Threads(), 1)
	pool.Run(len(pos), func(worker, i int) {
		by.Score(x[i*by.In:(i+1)*by.In], l.scores[(seen+i)*heads:(seen+i+1)*heads], &s.scratch[worker])
	})
}

// Value implements Observer.
func (s *hiddenScores) Value(int) (any, error) { return policy.HiddenScorer(s), nil }

// Forget implements Observer.
func (s *hiddenScores) Forget(layer int) { s.layers[layer] = hiddenLayer{} }

// Cached implements policy.HiddenScorer.
func (s *hiddenScores) Cached(layer int) [][]float32 {
	if !s.t.Acts(layer) {
		return nil
	}
	dst := make([][]float32, s.t.f.o.Shape.kv(layer).Heads)
	for g := range dst {
		dst[g] = make([]float32, s.t.seq.Tokens(layer, g))
	}
	return dst
}

// Layer implements policy.HiddenScorer.
func (s *hiddenScores) Layer(layer int, dst [][]float32) {
	l := &s.layers[layer]
	for g, row := range dst {
		at := 0
		for i, p := range s.t.seq.PositionList(layer, g) {
			for at < len(l.pos) && l.pos[at] < p {
				at++
			}
			row[i] = l.score(at, p, g, len(dst))
		}
	}
}

// Token implements policy.HiddenScorer.
func (s *hiddenScores) Token(layer, kvHead int, pos int32) float32 {
	l := &s.layers[layer]
	at, _ := slices.BinarySearch(l.pos, pos)
	return l.score(at, pos, kvHead, s.by.Layers[layer].Heads)
}

// score is that of a position, which is at an index or was not seen.
func (l *hiddenLayer) score(at int, pos int32, kvHead, heads int) float32 {
	if at < len(l.pos) && l.pos[at] == pos {
		return l.scores[at*heads+kvHead]
	}
	return float32(math.Inf(1))
}
