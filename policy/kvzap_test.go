package policy

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"terrace/internal/cacheshape"
)

// hiddenOf are rows that maps score: what stands in a scene's queries before RoPE.
type hiddenOf struct {
	s  *scene
	by *ScoreMap
}

func init() {
	answers[HiddenScores{}.Key()] = func(s looking, o Observation) any {
		scene, _ := s.(*scene)
		return HiddenScorer(hiddenOf{scene, o.(HiddenScores).By})
	}
}

func (h hiddenOf) Cached(layer int) [][]float32 {
	dst := make([][]float32, h.s.kvHeads)
	for g := range dst {
		dst[g] = make([]float32, len(h.s.cached(g)))
	}
	return dst
}

func (h hiddenOf) Layer(layer int, dst [][]float32) {
	for g := range dst {
		for i, p := range h.s.cached(g) {
			dst[g][i] = h.Token(layer, g, p)
		}
	}
}

func (h hiddenOf) Token(layer, kvHead int, pos int32) float32 {
	var scratch []float32
	out := make([]float32, h.s.kvHeads)
	h.by.Layers[layer].Score(h.s.pre[pos], out, &scratch)
	return out[kvHead]
}

// drawn are numbers of a normal distribution.
func drawn(r *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * scale)
	}
	return x
}

func randomMap(seed uint64, layers, in, heads int, form string) *ScoreMap {
	r, m := rand.New(rand.NewPCG(seed, 2)), &ScoreMap{}
	for range layers {
		s := ScoreLayer{In: in, Heads: heads, OutBias: drawn(r, heads, 1)}
		switch form {
		case "linear":
			s.Out = drawn(r, heads*in, 0.3)
		case "mlp":
			s.Hidden, s.HiddenBias, s.Out = drawn(r, 5*in, 0.3), drawn(r, 5, 1), drawn(r, heads*5, 1)
		case "gate":
			const group, dim, base = 2, 3, 4
			s.Gate = &ScoreGate{Group: group, Dim: dim, Base: base, Query: drawn(r, heads*group*dim*in, 0.3), QueryBias: drawn(r, heads*group*dim, 1), Key: drawn(r, heads*dim*in, 0.3),
				QueryNorm: drawn(r, dim, 1), KeyNorm: drawn(r, dim, 1), BaseKeys: drawn(r, heads*base*dim, 1), BiasOfGroups: drawn(r, heads*group, 1)}
		}
		m.Layers = append(m.Layers, s)
	}
	return m
}

// refScore follows the authors' modules, in float64.
func refScore(s *ScoreLayer, x []float32) []float64 {
	times := func(w []float32, rows int, x []float64) []float64 {
		out := make([]float64, rows)
		for i := range out {
			for j, v := range x {
				out[i] += float64(w[i*len(x)+j]) * v
			}
		}
		return out
	}
	wide := make([]float64, len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	out := make([]float64, s.Heads)
	if g := s.Gate; g != nil {
		q, k := times(g.Query, s.Heads*g.Group*g.Dim, wide), times(g.Key, s.Heads*g.Dim, wide)
		normed := func(x []float64, w []float32) []float64 {
			sum, out := 0.0, make([]float64, len(x))
			for _, v := range x {
				sum += v * v / float64(len(x))
			}
			for i, v := range x {
				out[i] = v / math.Sqrt(sum+1e-6) * float64(w[i])
			}
			return out
		}
		for i := range q {
			q[i] += float64(g.QueryBias[i])
		}
		for h := range out {
			key := normed(k[h*g.Dim:(h+1)*g.Dim], g.KeyNorm)
			for i := range g.Group {
				query := normed(q[(h*g.Group+i)*g.Dim:(h*g.Group+i+1)*g.Dim], g.QueryNorm)
				own, others := float64(g.BiasOfGroups[h*g.Group+i]), 0.0
				for d := range key {
					own += key[d] * query[d] / math.Sqrt(float64(g.Dim))
				}
				for b := range g.Base {
					base := 0.0
					for d := range query {
						base += float64(g.BaseKeys[(h*g.Base+b)*g.Dim+d]) * query[d] / math.Sqrt(float64(g.Dim))
					}
					others += math.Exp(base - own)
				}
				out[h] += 1 / (1 + others) / float64(g.Group)
			}
		}
		return out
	}
	if s.Hidden != nil {
		wide = times(s.Hidden, len(s.HiddenBias), wide)
		for i := range wide {
			v := wide[i] + float64(s.HiddenBias[i])
			wide[i] = v * (1 + math.Erf(v/math.Sqrt2)) / 2
		}
	}
	for h, v := range times(s.Out, s.Heads, wide) {
		out[h] = v + float64(s.OutBias[h])
	}
	return out
}

// mapSet binds a policy to a map of a scene's queries.
func mapSet(t *testing.T, spec string, s *scene, m *ScoreMap) *Set {
	t.Helper()
	parsed, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	set, err := parsed.New(Model{Layers: cacheshape.Equal(s.layers, s.heads, cacheshape.KV{Heads: s.kvHeads, KeyDim: s.dim, ValueDim: s.dim}), Hidden: s.heads * s.dim,
		Filters: map[string]*Filters{"m.safetensors": {Scores: m}}})
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return set
}

// TestKVzap: what stays of each head, of a layer and of all layers is what a slow reference says, sinks and the window aside.
func TestKVzap(t *testing.T) {
	const n = 120
	s := randomScene(8, n, 4, 2, 16)
	s.fill()
	for _, form := range []string{"linear", "mlp", "gate"} {
		m := randomMap(3, s.layers, 64, 2, form)
		for _, c := range []struct {
			params          string
			sinks, newest   int
			budget, sharing int // tokens a head on average; heads that share
		}{
			{"kvzap:budget=30", 4, 0, 30, 1}, {"kvzap:budget=33,n_sink=0,window=10", 0, 10, 33, 1}, {"kvzap:budget=40,budgets=layer,n_sink=2,window=5%", 2, 6, 40, 2},
			{"kvzap:budget=25,budgets=global", 4, 0, 25, 8}, {"FastKVzipPress:budget=50,n_sink=5", 5, 2, 50, 8}, {"adakv:kvzap,budget=30,alpha_safeguard=0", 4, 0, 30, 2},
		} {
			spec := c.params + ",weights=@m.safetensors"
			set := mapSet(t, spec, s, m)
			if set.Rereader != nil {
				if !set.Rereader.Repeats(n, 1024).None {
					t.Errorf("%s reads the prompt again", spec)
				}
				set.Rereader.BeginRepeats()
			}
			scores := make([][][]float64, s.layers)
			for layer := range scores {
				scores[layer] = make([][]float64, 2)
				for i := range n {
					for h, x := range refScore(&m.Layers[layer], s.pre[i]) {
						if i < c.sinks || i >= n-c.newest {
							x = 1e9
						}
						scores[layer][h] = append(scores[layer][h], x)
					}
				}
			}
			for layer := range s.layers {
				s.index = layer
				var keep Selection
				set.Keeper.KeepPrompt(s.shown(set.Keeper), &keep)
				for h := range keep.Heads {
					var pool []float64
					at := 0
					switch c.sharing {
					case 1:
						pool = scores[layer][h]
					case 2:
						pool, at = append(append(pool, scores[layer][0]...), scores[layer][1]...), h*n
					default:
						for l := range scores {
							pool = append(append(pool, scores[l][0]...), scores[l][1]...)
						}
						at = (2*layer + h) * n
					}
					var want []int32
					for _, i := range topOf(pool, c.budget*c.sharing) {
						if int(i) >= at && int(i) < at+n {
							want = append(want, i-int32(at))
						}
					}
					equalIndices(t, keep.Heads[h], want, fmt.Sprintf("%s, %s, layer %d, head %d", spec, form, layer, h))
				}
			}
			s.index = 0
		}
	}
}

// TestKVzapUnderDMS: a threshold decides, and while decoding each token once.
func TestKVzapUnderDMS(t *testing.T) {
	s := randomScene(8, 60, 4, 2, 16)
	m := randomMap(3, s.layers, 64, 2, "mlp")
	set := mapSet(t, "dms:kvzap,weights=@m.safetensors,threshold=0.5,window=8,decoding=true", s, m)
	var keep, drop Selection
	set.Keeper.KeepPrompt(s.shown(set.Keeper), &keep)
	for g, got := range keep.Heads {
		var want []int32
		for i := range 60 {
			if i < 4 || i >= 52 || !(refScore(&m.Layers[0], s.pre[i])[g] < 0.5) {
				want = append(want, int32(i))
			}
		}
		equalIndices(t, got, want, fmt.Sprintf("head %d", g))
		if len(want) < 15 || len(want) > 55 {
			t.Errorf("%d tokens stay: the threshold shows little", len(want))
		}
	}
	r, dropped := rand.New(rand.NewPCG(1, 1)), 0
	for step := range 12 {
		s.push(r)
		s.pos = nil
		set.Dropper.DropStep(s.shown(set.Dropper), &drop)
		leaves := 60 + step - 8
		for g, got := range drop.Heads {
			if low := refScore(&m.Layers[0], s.pre[leaves])[g] < 0.5; low != (len(got) == 1) || low && int(got[0]) != leaves {
				t.Errorf("step %d, head %d: drops %v of token %d, low %v", step, g, got, leaves, low)
			}
			dropped += len(got)
		}
	}
	if dropped == 0 || dropped == 24 {
		t.Errorf("%d tokens dropped: the threshold shows nothing", dropped)
	}
}

func TestKVzapRefuses(t *testing.T) {
	for _, spec := range []string{"kvzap", "kvzap:weights=x", "kvzap:weights=NaN", "kvzap:weights=1,budgets=some", "kvzap:weights=1,window=-3", "fastkvzip:budgets=global"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v, want a bad parameter", spec, err)
		}
	}
	spec, err := Parse("kvzap:weights=@a.safetensors")
	if err != nil || spec.Needs().Filters != "a.safetensors" {
		t.Fatalf("%v: needs %q", err, spec.Needs().Filters)
	}
	layers := cacheshape.Equal(4, 4, cacheshape.KV{Heads: 2, KeyDim: 16, ValueDim: 16})
	for what, f := range map[string]*Filters{"no file": nil, "q-filters": {Layers: 4}, "layers": {Scores: randomMap(1, 3, 64, 2, "linear")},
		"width": {Scores: randomMap(1, 4, 63, 2, "linear")}, "heads": {Scores: randomMap(1, 4, 64, 3, "mlp")}} {
		m := Model{Layers: layers, Hidden: 64, Filters: map[string]*Filters{"a.safetensors": f}}
		if f == nil {
			m.Filters = nil
		}
		if _, err := spec.New(m); !errors.Is(err, ErrModel) {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
	}
}
