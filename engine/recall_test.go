package engine

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/attention/keyindex"
	"terrace/internal/golden"
	"terrace/model"
	"terrace/policy"
)

// TestRecallRealModel measures on SmolLM2 reading wikitext-2 what HillInfer's low precision and its guessed query miss: how
// many of the best tenth of the tokens, by float64 sums over the cached keys and the step's own query, are chosen otherwise too.
// Hidden rows are those of full attention: the session's own policy reads every token, and guesses.
func TestRecallRealModel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: reads 600 tokens")
	}
	var ids []int
	for _, id := range golden.Tensors(t, golden.Shared(t, "data", "golden", "smollm2_logits", "perplexity_ids.safetensors"))["ids"].Values {
		ids = append(ids, int(id))
	}
	const prompt, steps = 600, 10
	e := openModel(t, golden.Model(t, "smollm2:135m"), Options{Policy: "hillinfer:alpha=0.9999,guess_from=0", Context: prompt + steps})
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), ids[:prompt], PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	ways := []struct {
		name, spec string
		least      float64 // 0.02 below what was measured; keys in half precision are those of the cache, and bfloat16 would find 0.9981
		hit, all   int
		set        *policy.Set
		layers     []*keyindex.Index
	}{
		{name: "fp16", spec: "hillinfer:alpha=0.1,score=fp16,query=exact", least: 0.9988},
		{name: "int8", spec: "hillinfer:alpha=0.1,score=int8,query=exact", least: 0.97},
		{name: "int4", spec: "hillinfer:alpha=0.1,score=int4,query=exact", least: 0.90},
		{name: "int8, guessed query", spec: "hillinfer:alpha=0.1,score=int8", least: 0.9},
		{name: "int8, guessed query from the second layer on", spec: "hillinfer:alpha=0.1,score=int8,guess_from=0", least: 0.85},
		{name: "int8, last step's query", spec: "hillinfer:alpha=0.1,score=int8,query=prev_step", least: 0.7},
	}
	refresh := func(x *keyindex.Index, l *policy.Layer, views []attention.View) {
		for g := range views {
			x.Head(g).Refresh(&views[g], l.Pos[g], math.MaxInt, l, g, nil)
		}
	}
	for i := range ways {
		w := &ways[i]
		spec, err := policy.Parse(w.spec)
		if err != nil {
			t.Fatal(err)
		}
		if w.set, err = spec.New(e.policyModel()); err != nil {
			t.Fatal(err)
		}
		for layer := range e.m.Layers { // scales are the prompt's
			w.layers = append(w.layers, keyindex.New(w.set.Needs().Sketch, e.m.Layer[0].KVHeads, e.m.Layer[0].KeyDim))
			refresh(w.layers[layer], s.text.Layer(layer, 0), s.text.Seq().Views(layer))
		}
	}
	step, previous := 0, make([][]float32, e.m.Layers)
	spy := &spyBackend{Backend: e.backend, guesses: make([][]float32, e.m.Layers)}
	e.backend = spy
	spy.onAttend = func(layer int, q []float32) {
		best := bestTenth(s.text.Layer(layer, 1), q)
		for i := range ways {
			w, l := &ways[i], s.text.Layer(layer, 1)
			refresh(w.layers[layer], l, s.text.Seq().Views(layer))
			l.Queries, l.Rows, l.Scores = q, 1, w.layers[layer]
			needs := w.set.Needs()
			switch kind := needs.QueryOf(layer); {
			case kind == policy.QueryGuess && layer > 0:
				if len(spy.guesses[layer]) == 0 {
					t.Fatal("no guess")
				}
				l.Queries = spy.guesses[layer]
			case kind == policy.QueryPrevious && step > 0:
				l.Queries = previous[layer]
			}
			var picks policy.Selection
			picks.Reset(e.m.Layer[0].KVHeads)
			w.set.Selector.Select(l, &picks)
			if step == 0 || layer == 0 {
				continue // nothing to guess from, no step before
			}
			w.all += len(best)
			for _, at := range picks.Heads[0] {
				if _, ok := slices.BinarySearch(best, at); ok {
					w.hit++
				}
			}
		}
		previous[layer] = append(previous[layer][:0], q...)
	}
	for ; step < steps; step++ {
		if err := s.Decode(ids[prompt+step]); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range ways {
		if w.all == 0 {
			t.Fatal("nothing was compared")
		}
		recall := float64(w.hit) / float64(w.all)
		t.Logf("%s: recall %.3f of %d picks", w.name, recall, w.all)
		if recall < w.least {
			t.Errorf("%s: recall %.3f, want %.2f", w.name, recall, w.least)
		}
	}
}

// bestTenth are the indices of the tenth of the tokens before the newest that sum over the heads of q·k ranks highest, in
// float64; of equal ones the earlier.
func bestTenth(l *policy.Layer, q []float32) []int32 {
	n := l.Tokens(0) - 1
	sums, key := make([]float64, n), make([]float32, l.KeyDim)
	for h := range l.Heads {
		for i := range n {
			l.KV.Keys(h/l.Group(), i, i+1, key)
			for d, x := range key {
				sums[i] += float64(x) * float64(q[h*l.KeyDim+d])
			}
		}
	}
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(sums[b], sums[a]) })
	best := order[:(n+9)/10]
	slices.Sort(best)
	return best
}

// spyBackend shows what attention is asked with and what queries were guessed.
type spyBackend struct {
	model.Backend
	onAttend func(layer int, q []float32)
	guesses  [][]float32 // [Layers]
}

// Attend implements model.Backend.
func (b *spyBackend) Attend(p *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	b.onAttend(layer, floats(q))
	return b.Backend.Attend(p, layer, q, seqs)
}

// GuessQuery implements model.QueryGuesser.
func (b *spyBackend) GuessQuery(p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	q, err := b.Backend.(model.QueryGuesser).GuessQuery(p, layer, hidden)
	if err == nil {
		b.guesses[layer] = append(b.guesses[layer][:0], floats(q)...)
	}
	return q, err
}
