package engine

import (
	"slices"
	"testing"

	"terrace/internal/golden"
	"terrace/policy"
)

// TestRecallRealModel measures on SmolLM2 reading wikitext-2 what HillInfer's low precision and its guessed query miss: how
// many of the best tenth of the tokens by half-precision keys and the step's own query are chosen otherwise too. Hidden rows
// are those of full attention: the session's own policy reads every token, and guesses.
func TestRecallRealModel(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: reads 2,000 tokens")
	}
	var ids []int
	for _, id := range golden.Tensors(t, golden.Shared(t, "data", "golden", "smollm2_logits", "perplexity_ids.safetensors"))["ids"].Values {
		ids = append(ids, int(id))
	}
	const prompt, steps = 2000, 16
	e := openModel(t, golden.Model(t, "smollm2:135m"), Options{Policy: "hillinfer:alpha=0.9999,guess_from=0", Context: prompt + steps})
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), ids[:prompt], PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	ways := []struct {
		name, spec string
		least      float64 // goals of the design for the exact query; the guess is reported
		hit, all   int
		run        *policyRun
	}{
		{name: "fp16", spec: "hillinfer:alpha=0.1,score=fp16,query=exact", least: 1},
		{name: "int8", spec: "hillinfer:alpha=0.1,score=int8,query=exact", least: 0.97},
		{name: "int4", spec: "hillinfer:alpha=0.1,score=int4,query=exact", least: 0.90},
		{name: "int8, guessed query", spec: "hillinfer:alpha=0.1,score=int8", least: 0.9},
		{name: "int8, guessed query from the second layer on", spec: "hillinfer:alpha=0.1,score=int8,guess_from=0", least: 0.5},
		{name: "int8, last step's query", spec: "hillinfer:alpha=0.1,score=int8,query=prev_step", least: 0.5},
	}
	for i := range ways {
		spec, err := policy.Parse(ways[i].spec)
		if err != nil {
			t.Fatal(err)
		}
		if ways[i].run, err = e.newRun(spec); err != nil {
			t.Fatal(err)
		}
		for layer := range e.m.Layers { // scales are the prompt's
			ways[i].run.sketchPrompt(s, layer, 0)
		}
	}
	step := 0
	e.onQueries = func(layer int, q []float32, _ int) {
		var best []int32
		for i := range ways {
			w := &ways[i]
			st := &w.run.state[layer]
			l := w.run.observe(s, layer, 1)
			w.run.refreshSketch(st, w.run.reader.views, l)
			st.guess = s.policy.state[layer].guess
			if w.run.needs.QueryOf(layer) == policy.QueryGuess && layer > 0 && len(st.guess) == 0 {
				t.Fatal("no guess")
			}
			l.Queries, l.Rows, l.Scores = st.guessed(w.run.needs.QueryOf(layer), q), 1, st.index
			var picks policy.Picks
			w.run.set.Selector.Select(l, &picks)
			st.previous = append(st.previous[:0], q...)
			if i == 0 {
				best = slices.Clone(picks.Heads[0])
			}
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
