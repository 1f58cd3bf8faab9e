package retrieval

import (
	"math"
	"testing"

	"terrace/policy"
)

// TestHiddenScores: each cached token has what the map gives its own row, whatever passes the rows come in; tokens from before the prompt
// have +Inf; rows that come again replace what was seen.
func TestHiddenScores(t *testing.T) {
	for _, pass := range []int{1, 7, 40, 100} {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{bare: true})
		m := &policy.ScoreMap{}
		for layer := range 3 {
			m.Layers = append(m.Layers, policy.ScoreLayer{In: 2, Heads: 2, Out: []float32{1, float32(layer), 0, -1}, OutBias: []float32{0, 5}})
		}
		of := policy.HiddenScores{By: m}
		x := s.under(t, "a", (&testKeeper{needs: policy.Needs{Observations: []policy.Observation{of}}}).set(), spec)
		seen := x.obs.hidden[0]
		if len(x.obs.hidden) != 1 || seen != x.obs.each[0] {
			t.Fatalf("observers %v", x.obs.hidden)
		}
		row := func(p int32) []float32 { return []float32{float32(p * p), 3 * float32(p)} }
		show := func(layer int, from, to int32) {
			for at := from; at < to; at += int32(pass) {
				var rows []float32
				var pos []int32
				for p := at; p < min(at+int32(pass), to); p++ {
					rows, pos = append(rows, row(p)...), append(pos, p)
				}
				seen.Hidden(layer, rows, pos)
			}
		}
		if err := s.prompt(x, 30, 16); err != nil { // nobody shows the rows of this one
			t.Fatal(err)
		}
		for layer := range 3 {
			show(layer, 12, 29)
			seen.Hidden(layer, []float32{1e6, 1e6}, []int32{28}) // and is taken back
			seen.Hidden(layer, row(28), []int32{28})
			show(layer, 29, 30)
			value, err := seen.Value(layer)
			if err != nil {
				t.Fatal(err)
			}
			scorer := value.(policy.HiddenScorer)
			dst := scorer.Cached(layer)
			scorer.Layer(layer, dst)
			for g := range dst {
				if len(dst[g]) != 30 {
					t.Fatalf("%d tokens", len(dst[g]))
				}
				for i, got := range dst[g] {
					want := float32(math.Inf(1))
					if r := row(int32(i)); i >= 12 {
						want = []float32{r[0] + float32(layer)*r[1], 5 - r[1]}[g]
					}
					if alone := scorer.Token(layer, g, int32(i)); got != want || alone != want {
						t.Errorf("layer %d, head %d, token %d: %g and %g, want %g", layer, g, i, got, alone, want)
					}
				}
			}
		}
		seen.Forget(1)
		if l := seen.(*hiddenScores).layers[1]; l.pos != nil || l.scores != nil {
			t.Error("a layer's scores are kept for nobody")
		}
		s.close(t)
	}
}
