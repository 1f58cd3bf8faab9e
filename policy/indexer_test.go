package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
)

// chosen asks an indexer of some blocks for a row that sees n tokens, by two heads' scores.
func chosen(t *testing.T, spec string, block, topK, n int, weights []float32, scores ...float32) []int32 {
	t.Helper()
	p, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	set, err := p.New(Model{Layers: cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: 8, ValueDim: 4, Index: 4}), Index: &Index{Heads: 2, Dim: 4, TopK: topK, Block: block}})
	if err != nil {
		t.Fatal(err)
	}
	if !set.Causal() || set.Lossless() {
		t.Error("the indexer drops something, or nothing")
	}
	rows := set.Selector.(RowSelector)
	if rows.ReadsAll(n) {
		return span(nil, 0, n)
	}
	return rows.Choose(nil, weights, slices.Clone(scores), len(scores)/2, n, &IndexRank{})
}

func TestIndexerChooses(t *testing.T) {
	w := []float32{1, -2}
	// Sums of relu: 3-0, 0-2, 5-0, 1-8, 0-0 = 3, -2, 5, -7, 0; a last score lies behind what the row sees.
	scores := []float32{3, -1, 5, 1, -4, 9, -7, 1, -1, 4, -1, 0}
	equalIndices(t, chosen(t, "indexer", 1, 2, 5, w, scores...), []int32{0, 2}, "the best two")
	equalIndices(t, chosen(t, "indexer", 1, 3, 5, w, scores...), []int32{0, 2, 4}, "the best three")
	equalIndices(t, chosen(t, "indexer:budget=4", 1, 2, 5, w, scores...), []int32{0, 1, 2, 4}, "a budget of four")
	equalIndices(t, chosen(t, "indexer:budget=20%", 1, 2, 5, w, scores...), []int32{2}, "a fifth")
	equalIndices(t, chosen(t, "indexer", 1, 9, 5, w, scores...), []int32{0, 1, 2, 3, 4}, "more than there are")
	// Blocks of 3, of which 11 tokens have three whole: two tokens are behind them.
	equalIndices(t, chosen(t, "indexer", 3, 1, 11, w, scores...), []int32{6, 7, 8, 9, 10}, "the best block and the rest")
	equalIndices(t, chosen(t, "indexer:budget=6", 3, 1, 11, w, scores...), []int32{0, 1, 2, 6, 7, 8, 9, 10}, "two blocks and the rest")
}

func TestIndexerRefused(t *testing.T) {
	p, err := Parse("indexer")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.New(Model{Layers: cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: 4, ValueDim: 4})}); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "no trained indexer") {
		t.Errorf("a model without one: %v", err)
	}
	for spec, want := range map[string]error{"indexer+snapkv": ErrClash, "h2o+indexer": ErrClash, "topp:indexer": ErrParam, "indexer:budget=64MiB": ErrParam, "decoding:indexer": ErrParam} {
		if _, err := Parse(spec); !errors.Is(err, want) || !strings.Contains(err.Error(), "indexer") {
			t.Errorf("%s: %v, want %v", spec, err, want)
		}
	}
}
