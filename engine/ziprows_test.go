package engine

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"terrace/policy"
)

// TestZipRows: the rows of the first layer are its normed embeddings, and the scores those of kvzip_plus at the same tokens.
func TestZipRows(t *testing.T) {
	t.Parallel()
	m := openFile(t, filepath.Join("testdata", "kvpress", "model"))
	e := openOn(t, m, Options{Exact: true, Threads: 1, ChunkTokens: 32, Repeat: &RepeatText{First: []int{3, 5}, Suffix: []int{7}}})
	ids := make([]int, 90)
	for i := range ids {
		ids[i] = (37*i + 5) % 221
	}
	at := []int32{4, 5, 31, 32, 63, 80, 89}
	s, err := e.NewSession(parsed(t, "kvzip_plus:ratio=0.01"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), ids, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	var layers []int
	err = e.ZipRows(t.Context(), ids, at, func(layer int, x, y []float32) {
		layers = append(layers, layer)
		if len(x) != len(at)*m.Hidden || len(y) != len(at)*2 {
			t.Fatalf("layer %d: %d numbers and %d scores", layer, len(x), len(y))
		}
		for i, p := range at {
			for g := range 2 {
				if want := math.Log(float64(policy.Found(s.text.Policy().Keeper, layer)[g][p])); math.Abs(float64(y[2*i+g])-want) > 1e-5 || !(want < 0) {
					t.Errorf("layer %d, head %d, token %d: %g, want %g", layer, g, p, y[2*i+g], want)
				}
			}
			if layer > 0 {
				continue
			}
			row := make([]float32, m.Hidden)
			if err := m.Params.Embed.Row(row, ids[p]); err != nil {
				t.Fatal(err)
			}
			weight, err := m.Params.Layers[0].AttnNorm.W.Values()
			if err != nil {
				t.Fatal(err)
			}
			var squares float64
			for _, v := range row {
				squares += float64(v) * float64(v) / float64(m.Hidden)
			}
			for j, v := range row {
				if want := float64(v) / math.Sqrt(squares+1e-5) * float64(weight[j]); math.Abs(float64(x[i*m.Hidden+j])-want) > 1e-4 {
					t.Fatalf("token %d, number %d: %g, want %g", p, j, x[i*m.Hidden+j], want)
				}
			}
		}
	})
	if err != nil || !slices.Equal(layers, []int{0, 1, 2}) {
		t.Errorf("%v, layers %v", err, layers)
	}
}

// TestKVzapAcrossPrompts: what an earlier prompt kept, and what was generated, stays under a second; batches and tiers are
// TestTiersChangeNothing's and others', which take every policy.
func TestKVzapAcrossPrompts(t *testing.T) {
	t.Parallel()
	m := openFile(t, filepath.Join("testdata", "kvpress", "model"))
	for _, spec := range []string{"kvzap:weights=0.1,budget=50%", "fastkvzip:weights=0.1,budget=50%,budgets=layer"} {
		e := openOn(t, m, Options{Exact: true, Threads: 1, Policy: spec, Repeat: &RepeatText{First: []int{3, 5}}})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ids := make([]int, 60)
		for i := range ids {
			ids[i] = (37*i + 5) % 221
		}
		if err := s.Prefill(t.Context(), ids, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Decode(9); err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(s.Positions(1, 0))
		if err := s.Prefill(t.Context(), ids[:39], PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		after := s.Positions(1, 0)
		if n := len(s.Positions(1, 0)) + len(s.Positions(1, 1)); n != 100 || !slices.Equal(after[:len(before)], before) || before[len(before)-1] != 60 {
			t.Errorf("%s: %v, then %v: want all of those and %d in both heads", spec, before, after, 100)
		}
	}
}
