package policy

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
)

// TestQFilter: the tokens with the largest -filter·k stay, by a filter of the layer and KV head, whether filters come from a file or as
// numbers; and with keys in the other order of pairs the same.
func TestQFilter(t *testing.T) {
	s := randomScene(7, 60, 4, 2, 16) // of 4 layers
	s.fill()
	s.index = 2
	r := rand.New(rand.NewPCG(7, 7))
	f := &Filters{Layers: 4, KVHeads: 2, KeyDim: 16, Values: make([]float32, 4*2*16)}
	for i := range f.Values {
		f.Values[i] = float32(r.NormFloat64())
	}
	m := Model{Layers: cacheshape.Equal(4, 4, cacheshape.KV{Heads: 2, KeyDim: 16, ValueDim: 16}), Filters: map[string]*Filters{"a.safetensors": f}}
	spec, err := Parse("QFilterPress:filters=@a.safetensors,compression_ratio=0.75")
	if err != nil {
		t.Fatal(err)
	}
	if spec.Needs().Filters != "a.safetensors" {
		t.Errorf("needs the filters of %q", spec.Needs().Filters)
	}
	set, err := spec.New(m)
	if err != nil {
		t.Fatal(err)
	}
	l := s.shown(set.Keeper)
	var keep Selection
	set.Keeper.KeepPrompt(l, &keep)
	key := make([]float32, 16)
	for g := range 2 {
		score := make([]float64, 60)
		order := make([]int32, 60)
		for i := range score {
			order[i] = int32(i)
			l.KV.Keys(g, i, i+1, key)
			for d, x := range key {
				score[i] -= float64(x) * float64(f.Values[(2*2+g)*16+d])
			}
		}
		slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(score[b], score[a]) })
		want := order[:15]
		slices.Sort(want)
		equalIndices(t, keep.Heads[g], want, "kept")
	}
	m.Interlaced = true
	turned := []float32{1, 3, 2, 4, 5, 7, 6, 8} // of halves 1 2 | 3 4 and 5 6 | 7 8
	if got := interlaced([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 4); !slices.Equal(got, turned) {
		t.Errorf("interlaced: %v, want %v", got, turned)
	}
	if set, err = spec.New(m); err != nil {
		t.Fatal(err)
	}
	if q := set.Parts[0].(*qfilter); q.filters[0] != f.Values[0] || q.filters[1] != f.Values[8] || f.Values[1] == f.Values[8] {
		t.Errorf("filters of a model with neighbouring pairs begin %v", q.filters[:2])
	}
}

func TestQFilterRefuses(t *testing.T) {
	for _, spec := range []string{"qfilter", "qfilter:budget=20%", "qfilter:filters=0.1/x", "qfilter:filters=Inf"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v, want a bad parameter", spec, err)
		}
	}
	m := Model{Layers: cacheshape.Equal(4, 2, cacheshape.KV{Heads: 2, KeyDim: 16}), Filters: map[string]*Filters{"other.safetensors": {Layers: 4, KVHeads: 1, KeyDim: 32, Values: make([]float32, 128)}}}
	for text, names := range map[string]string{"qfilter:filters=1/2/3": "3 numbers", "qfilter:filters=@missing.safetensors": "missing.safetensors", "qfilter:filters=@other.safetensors": "1 KV heads of 32"} {
		spec, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := spec.New(m); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v, want %q", text, err, names)
		}
	}
	text, err := ExpandFiles("adakv:qfilter,filters=@a.safetensors,ratio=0.5", func(string) ([]byte, error) { return nil, errors.New("is no text") })
	if err != nil || text != "adakv:qfilter,filters=@a.safetensors,ratio=0.5" {
		t.Errorf("%q, %v", text, err)
	}
}
