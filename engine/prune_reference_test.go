package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"sync"
	"testing"

	"terrace/engine/fakes"
	"terrace/model"
)

// plain is a forward pass of a small llama in float64, one loop a sum, written from the papers alone: rows that a layer's
// attention leaves behind do not reach its feed-forward network, nor any later layer.
type plain struct {
	m      *model.Model
	hidden [][]float64
	pos    []int
	// prune says which rows go on after a layer's attention; nil = all. q is [row][head·dk] and k [row][kvHead·dk], rotated;
	// w is [head][row]: the last row's softmax weights.
	prune func(layer int, pos []int, q, k [][]float64, w [][]float64) []int
	held  [][]int // positions whose keys a layer has
	// mask says which pairs of a layer's attention are computed; nil = all.
	mask func(layer int, q, k [][]float64) func(head, query, key int) bool

	inputs []map[int][]float64    // of each layer, by position: hidden as it reached the layer
	kv     []map[int][2][]float64 // keys and values by position

	queries [][][]float64 // of each layer, the prompt's rows that reached it
}

// matrices are those that values has returned, by *model.Linear.
var matrices sync.Map

// values is a matrix in float64, row by row; it is shared.
func values(t *testing.T, l *model.Linear) [][]float64 {
	t.Helper()
	if done, ok := matrices.Load(l); ok {
		return done.([][]float64)
	}
	flat, err := l.Values()
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]float64, l.Rows)
	for r := range out {
		for _, x := range flat[r*l.Cols : (r+1)*l.Cols] {
			out[r] = append(out[r], float64(x))
		}
	}
	matrices.Store(l, out)
	return out
}

func times(w [][]float64, x []float64) []float64 {
	out := make([]float64, len(w))
	for r, row := range w {
		out[r] = inner(row, x)
	}
	return out
}

func (p *plain) norm(t *testing.T, x []float64, n model.NormParams) []float64 {
	t.Helper()
	w, err := n.W.Values()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+float64(p.m.NormEps))
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v * scale * float64(w[i])
	}
	return out
}

// turn rotates the pairs (2i, 2i+1) of each head, as GGUF's llama weights have them.
func (p *plain) turn(layer int, x []float64, heads, pos int) {
	rope := p.m.Ropes[p.m.Layer[layer].Rope]
	for h := range heads {
		head := x[h*p.m.Layer[0].KeyDim:]
		for i, f := range rope.InvFreq {
			s, c := math.Sincos(float64(float32(pos) * f))
			a, b := head[2*i], head[2*i+1]
			head[2*i], head[2*i+1] = a*c-b*s, a*s+b*c
		}
	}
}

// run returns the last row's logits.
func (p *plain) run(t *testing.T, ids []int) []float64 {
	t.Helper()
	m := p.m
	embed := values(t, m.Params.Embed)
	for i, id := range ids {
		p.hidden, p.pos = append(p.hidden, slices.Clone(embed[id])), append(p.pos, i)
	}
	for layer := range m.Layers {
		p.layer(t, layer)
	}
	last := p.norm(t, p.hidden[len(p.hidden)-1], m.Params.FinalNorm)
	return times(values(t, m.Params.Output), last)
}

// cached is a copy that shares what was computed, for steps that add to it.
func (p *plain) cached() plain {
	c := plain{m: p.m}
	for layer := range p.kv {
		c.inputs, c.kv = append(c.inputs, maps.Clone(p.inputs[layer])), append(c.kv, maps.Clone(p.kv[layer]))
	}
	return c
}

func (p *plain) layer(t *testing.T, layer int) {
	t.Helper()
	m, l := p.m, &p.m.Params.Layers[layer]
	wq, wk, wv, wo := values(t, l.Q), values(t, l.K), values(t, l.V), values(t, l.O)
	var q, k, v [][]float64
	for i, x := range p.hidden {
		n := p.norm(t, x, l.AttnNorm)
		q, k, v = append(q, times(wq, n)), append(k, times(wk, n)), append(v, times(wv, n))
		p.turn(layer, q[i], m.Layer[0].Heads, p.pos[i])
		p.turn(layer, k[i], m.Layer[0].KVHeads, p.pos[i])
	}
	p.held, p.queries = append(p.held, slices.Clone(p.pos)), append(p.queries, q)
	p.inputs, p.kv = append(p.inputs, map[int][]float64{}), append(p.kv, map[int][2][]float64{})
	for i, at := range p.pos {
		p.inputs[layer][at], p.kv[layer][at] = slices.Clone(p.hidden[i]), [2][]float64{k[i], v[i]}
	}
	var weights [][]float64
	var sees func(head, query, key int) bool
	if p.mask != nil {
		sees = p.mask(layer, q, k)
	}
	for i := range p.hidden {
		out := make([]float64, m.Layer[0].Heads*m.Layer[0].ValDim)
		for h := range m.Layer[0].Heads {
			w := p.weights(q[i], k[:i+1], h, sees)
			for j, a := range w {
				for d := range m.Layer[0].ValDim {
					out[h*m.Layer[0].ValDim+d] += a * v[j][h/m.Layer[0].Group()*m.Layer[0].ValDim+d]
				}
			}
			if i == len(p.hidden)-1 {
				weights = append(weights, w)
			}
		}
		for d, x := range times(wo, out) {
			p.hidden[i][d] += x
		}
	}
	if p.prune != nil {
		var hidden [][]float64
		var pos []int
		for _, i := range p.prune(layer, p.pos, q, k, weights) {
			hidden, pos = append(hidden, p.hidden[i]), append(pos, p.pos[i])
		}
		p.hidden, p.pos = hidden, pos
	}
	gate, up, down := values(t, l.Gate), values(t, l.Up), values(t, l.Down)
	for _, x := range p.hidden {
		p.feedForward(t, x, l.FFNNorm, gate, up, down)
	}
}

func (p *plain) feedForward(t *testing.T, x []float64, norm model.NormParams, gate, up, down [][]float64) {
	t.Helper()
	n := p.norm(t, x, norm)
	g, u := times(gate, n), times(up, n)
	for j := range u {
		u[j] *= g[j] / (1 + math.Exp(-g[j]))
	}
	for d, y := range times(down, u) {
		x[d] += y
	}
}

// keys projects a row at a layer and caches its keys and values; it returns the query.
func (p *plain) keys(t *testing.T, layer, pos int, x []float64) []float64 {
	t.Helper()
	l := &p.m.Params.Layers[layer]
	n := p.norm(t, x, l.AttnNorm)
	q, k, v := times(values(t, l.Q), n), times(values(t, l.K), n), times(values(t, l.V), n)
	p.turn(layer, q, p.m.Layer[0].Heads, pos)
	p.turn(layer, k, p.m.Layer[0].KVHeads, pos)
	p.inputs[layer][pos], p.kv[layer][pos] = slices.Clone(x), [2][]float64{k, v}
	return q
}

// row takes one row through a layer; it attends to the positions given, up to its own.
func (p *plain) row(t *testing.T, layer, pos int, x, q []float64, to []int) {
	t.Helper()
	m, l := p.m, &p.m.Params.Layers[layer]
	var k [][]float64
	var at []int
	for _, j := range to {
		if j <= pos {
			k, at = append(k, p.kv[layer][j][0]), append(at, j)
		}
	}
	out := make([]float64, m.Layer[0].Heads*m.Layer[0].ValDim)
	for h := range m.Layer[0].Heads {
		for j, a := range p.weights(q, k, h, nil) {
			for d := range m.Layer[0].ValDim {
				out[h*m.Layer[0].ValDim+d] += a * p.kv[layer][at[j]][1][h/m.Layer[0].Group()*m.Layer[0].ValDim+d]
			}
		}
	}
	for d, y := range times(values(t, l.O), out) {
		x[d] += y
	}
	p.feedForward(t, x, l.FFNNorm, values(t, l.Gate), values(t, l.Up), values(t, l.Down))
}

// weights is softmax of one head's scores with the keys given, those that it sees.
func (p *plain) weights(q []float64, k [][]float64, h int, sees func(head, query, key int) bool) []float64 {
	d, g := p.m.Layer[0].KeyDim, h/p.m.Layer[0].Group()
	out, sum := make([]float64, len(k)), 0.0
	for j := range k {
		for i := range d {
			out[j] += q[h*d+i] * k[j][g*d+i]
		}
		out[j] = math.Exp(out[j] / math.Sqrt(float64(d)))
		if sees != nil && !sees(h, len(k)-1, j) {
			out[j] = 0
		}
		sum += out[j]
	}
	for j := range out {
		out[j] /= sum
	}
	return out
}

func rowsOf(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// slimReference is SlimInfer's choice (algorithms.md 3.2, 3.3) from its formulas.
func slimReference(m *model.Model, keep map[int]int, block, unit, window int) func(int, []int, [][]float64, [][]float64, [][]float64) []int {
	return func(layer int, pos []int, q, k, _ [][]float64) []int {
		if keep[layer] == 0 {
			return rowsOf(len(pos))
		}
		scores := map[int]float64{}
		for i := range pos {
			b := pos[i] / block
			if i > 0 && pos[i]/unit == pos[i-1]/unit {
				continue
			}
			var r float64
			for h := range m.Layer[0].Heads {
				for d := range m.Layer[0].KeyDim {
					var mean, query float64
					n := 0
					for j := range pos {
						if pos[j]/unit == pos[i]/unit {
							mean, n = mean+k[j][h/m.Layer[0].Group()*m.Layer[0].KeyDim+d], n+1
						}
					}
					for j := len(q) - window; j < len(q); j++ {
						query += q[j][h*m.Layer[0].KeyDim+d] / float64(window)
					}
					r += mean / float64(n) * query / float64(m.Layer[0].Heads)
				}
			}
			if old, ok := scores[b]; !ok || r > old {
				scores[b] = r
			}
		}
		last := pos[len(pos)-1] / block
		var rest []int
		for b := range scores {
			if b != 0 && b != last {
				rest = append(rest, b)
			}
		}
		sort.Slice(rest, func(i, j int) bool { return scores[rest[i]] > scores[rest[j]] })
		chosen := append([]int{0, last}, rest[:min(len(rest), keep[layer]/block-2)]...)
		var out []int
		for i := range pos {
			if slices.Contains(chosen, pos[i]/block) {
				out = append(out, i)
			}
		}
		return out
	}
}

// lazyReference is LazyLLM's: the best share by the last row's mean weight, the last row among them.
func lazyReference(m *model.Model, layers []int, share float64) func(int, []int, [][]float64, [][]float64, [][]float64) []int {
	return func(layer int, pos []int, _, _, w [][]float64) []int {
		all := rowsOf(len(pos))
		if !slices.Contains(layers, layer) {
			return all
		}
		score := func(i int) (s float64) {
			for h := range m.Layer[0].Heads {
				s += w[h][i]
			}
			return s
		}
		last := len(pos) - 1
		rest := all[:last]
		sort.SliceStable(rest, func(i, j int) bool { return score(rest[i]) > score(rest[j]) })
		out := append(slices.Clone(rest[:int(share*float64(len(pos)))-1]), last)
		slices.Sort(out)
		return out
	}
}

// TestPruningMatchesPlainLoops: the engine's prompt under a pruner keeps the positions that the loops above keep, in every
// layer, and ends in their logits.
func TestPruningMatchesPlainLoops(t *testing.T) {
	t.Parallel()
	e := small(t, Options{})
	for seed := range uint64(3) {
		ids := fakes.IDs(101+7*int(seed), 40+seed)
		for spec, prune := range map[string]func(int, []int, [][]float64, [][]float64, [][]float64) []int{
			"sliminfer:layers=1/2,keep=64/32,block=16,unit=4,window=3": slimReference(e.m, map[int]int{0: 64, 1: 32}, 16, 4, 3),
			"sliminfer:layers=2,keep=48,block=8,unit=8,revive=none":    slimReference(e.m, map[int]int{1: 48}, 8, 8, 4),
			"lazyllm:layers=1/2,keep=40%":                              lazyReference(e.m, []int{0, 1}, 0.4),
		} {
			t.Run(fmt.Sprintf("%s seed %d", spec[:4], seed), func(t *testing.T) {
				want := plain{m: e.m, prune: prune}
				logits := want.run(t, ids)
				s := prefilled(t, small(t, Options{Exact: true, Policy: spec, ChunkTokens: 32}), ids)
				for layer := range want.held {
					for g := range e.m.Layer[0].KVHeads {
						var got []int
						for _, p := range s.text.Seq().PositionList(layer, g) {
							got = append(got, int(p))
						}
						if !slices.Equal(got, want.held[layer]) {
							t.Fatalf("layer %d head %d holds %v, want %v", layer, g, got, want.held[layer])
						}
					}
				}
				for i, x := range s.Logits() {
					if math.Abs(float64(x)-logits[i]) > 1e-4*math.Abs(logits[i])+1e-4 {
						t.Fatalf("logit %d is %g, want %g", i, x, logits[i])
					}
				}
			})
		}
	}
}

// prefilled is a session that has read ids; it is closed with the test.
func prefilled(t testing.TB, e *Engine, ids []int) *Session {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Prefill(t.Context(), ids, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	return s
}
