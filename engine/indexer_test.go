package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/golden"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
)

func indexed(t testing.TB, block int, o Options) *Engine {
	t.Helper()
	if o.Threads == 0 {
		o.Threads = 2
	}
	if block == withNGrams {
		return openModel(t, golden.Shared(t, "data", "golden", "families", "qwen4_exp"), o)
	}
	return openOn(t, fakes.Indexed(3, block), o)
}

// withNGrams is the golden with blocks of 4 that embeds n-grams, on several residual streams; others are random models.
const withNGrams = 0

// TestIndexedFamilies compares models with a trained indexer with Hugging Face's float32 logits of two prompts and its greedy continuation.
func TestIndexedFamilies(t *testing.T) {
	t.Parallel()
	for _, name := range indexedFamilies {
		t.Run(name, func(t *testing.T) {
			dir := golden.Shared(t, "data", "golden", "families", name)
			g := golden.Tensors(t, filepath.Join(dir, "golden.safetensors"))
			for _, chunk := range []int{0, 7} {
				e := openModel(t, dir, Options{Exact: true, ChunkTokens: chunk, Threads: 2})
				for _, k := range []string{"", "_2"} {
					ids, want := toInts(g["input_ids"+k].Floats()), g["logits"+k].Floats()
					var got []float32
					s, err := e.NewSession(e.Policy())
					if err != nil {
						t.Fatal(err)
					}
					err = s.Prefill(context.Background(), ids, PrefillHooks{Each: func(_ int, x []float32) error { got = append(got, x...); return nil }})
					if off := farthest(got, want); err != nil || off > 2e-4 {
						t.Errorf("chunks of %d, prompt%s: %v, max |Δlogit| is %.2g of the largest logit, want at most 2e-4", chunk, k, err, off)
					}
					s.Close()
				}
				r, err := e.Generate(context.Background(), Request{IDs: toInts(g["input_ids"].Floats()), MaxTokens: 12, IgnoreEOS: true, Sampler: model.SamplerOptions{Temperature: 0}})
				if err != nil || !slices.Equal(r.IDs, toInts(g["greedy_ids"].Floats())) {
					t.Errorf("greedy ids %v, %v, want %v", r, err, g["greedy_ids"].Floats())
				}
			}
		})
	}
}

var indexedFamilies = []string{"deepseek_v32", "qwen4_exp"}

func toInts(x []float32) []int {
	out := make([]int, len(x))
	for i := range x {
		out[i] = int(x[i])
	}
	return out
}

// farthest is the largest difference, of the largest number.
func farthest(got, want []float32) float64 {
	var off, most float32
	for i, w := range want {
		if i >= len(got) {
			return 1e9
		}
		off, most = max(off, got[i]-w, w-got[i]), max(most, w, -w)
	}
	return float64(off / most)
}

// TestIndexerAnyWay: what an indexer chooses, and all that follows, has the same bits in chunks, pages and threads of any number, alone and in
// a batch, in float and in quantised KV, and it is another text than full attention's.
func TestIndexerAnyWay(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(150, 1), fakes.IDs(12, 2)
	for _, block := range []int{1, 4, withNGrams} {
		e := indexed(t, block, Options{})
		if got := e.Policy().String(); got != "indexer" {
			t.Fatalf("the default is %s", got)
		}
		want := forced(t, e, prompt, next)
		if fakes.Worst(want, forced(t, indexed(t, block, Options{Policy: "full"}), prompt, next)) == 0 {
			t.Error("full attention computes the same: the indexer does nothing")
		}
		for _, o := range []Options{{ChunkTokens: 1}, {ChunkTokens: 7}, {ChunkTokens: 64, Threads: 3}, {PageTokens: 48, ChunkTokens: 33}} {
			if d := fakes.Worst(want, forced(t, indexed(t, block, o), prompt, next)); d != 0 {
				t.Errorf("blocks of %d, chunks of %d, pages of %d: logits differ by %g", block, o.ChunkTokens, o.PageTokens, d)
			}
		}
		var sessions []*Session
		for i := range 3 {
			s, err := e.NewSession(e.Policy())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ids := prompt
			if i != 1 {
				ids = fakes.IDs(40+i, uint64(i))
			}
			if err := s.Prefill(t.Context(), ids, PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, s)
		}
		for i, id := range next {
			if err := e.DecodeBatch(sessions, []int{5, id, 9}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(sessions[1].Logits(), want[i+1]) {
				t.Fatalf("blocks of %d: step %d in a batch differs", block, i)
			}
		}
	}
}

// TestIndexerReads: a step reads as many tokens as the model says, or as a budget does, and everything where that is as much: then the text
// is full attention's.
func TestIndexerReads(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(150, 1), fakes.IDs(3, 2)
	full := forced(t, indexed(t, 1, Options{Policy: "full"}), prompt, next)
	if d := fakes.Worst(full, forced(t, indexed(t, 1, Options{Policy: "indexer:budget=100%"}), prompt, next)); d != 0 {
		t.Errorf("a budget of everything differs from full by %g", d)
	}
	for name, want := range map[string]float64{"indexer": 24, "indexer:budget=40": 40, "indexer:top_k=10": 10} {
		e := indexed(t, 1, Options{Policy: name})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := errors.Join(s.Prefill(t.Context(), prompt, PrefillHooks{}), s.Decode(7), s.Decode(8)); err != nil {
			t.Fatal(err)
		}
		if u := s.KVUse(); u.TokensRead != want || u.SketchBytes == 0 || u.StepScanned == 0 {
			t.Errorf("%s: a step reads %g tokens, want %g; %d bytes to scan, %g scanned", name, u.TokensRead, want, u.SketchBytes, u.StepScanned)
		}
	}
}

// TestIndexerForkAndBack: such a text may be forked, and taken back to any token, and goes on as one that was never longer.
func TestIndexerForkAndBack(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(90, 1), fakes.IDs(10, 2)
	for _, block := range []int{1, 4, withNGrams} {
		e := indexed(t, block, Options{ChunkTokens: 32})
		want := forced(t, e, prompt, next)
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		f, err := s.Fork(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for i, id := range next {
			if err := errors.Join(f.Decode(id), s.Decode(next[len(next)-1-i])); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(f.Logits(), want[i+1]) {
				t.Fatalf("blocks of %d: step %d of the fork differs", block, i)
			}
		}
		other := fakes.IDs(30, 9)
		for _, n := range []int{len(prompt) + 3, 70, 33} {
			// Another continuation first: nothing of it may stay in the index.
			if err := errors.Join(f.Rewind(n), f.Prefill(t.Context(), other, PrefillHooks{}), f.Rewind(n)); err != nil {
				t.Fatal(err)
			}
			all := slices.Concat(prompt, next)
			if n < len(prompt) {
				if err := f.Prefill(t.Context(), prompt[n:], PrefillHooks{}); err != nil {
					t.Fatal(err)
				}
			}
			for i := max(n, len(prompt)); i < len(all); i++ {
				if err := f.Decode(all[i]); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(f.Logits(), want[i+1-len(prompt)]) {
					t.Fatalf("blocks of %d, back to %d: the logits after token %d differ", block, n, i)
				}
			}
		}
	}
}

// TestIndexerOnTiers: with most of its KV, index keys among it, below host memory such a model computes the same bits under any policy, within
// the budget.
func TestIndexerOnTiers(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(700, 1), fakes.IDs(9, 2)
	for _, block := range []int{1, 4} {
		for i, name := range []string{"", "full", "snapkv:budget=50", "quest:budget=48", "hillinfer:guess_from=0,alpha=0.4", "topk:budget=40", "knorm:ratio=0.5"} {
			if (i+block)%2 != 0 && !golden.Thorough() {
				continue
			}
			t.Run(fmt.Sprint(block, " ", strings.ReplaceAll(name, ":", " of ")), func(t *testing.T) {
				t.Parallel()
				o := Options{Policy: name, ChunkTokens: 32}
				e := indexed(t, block, o)
				want := forced(t, e, prompt, next)
				store, err := offload.NewMemory("below", e.shape(), 0)
				if err != nil {
					t.Fatal(err)
				}
				o.Store, o.KVBudgetBytes = store, 700<<10
				if e.policy.Needs().Sketch.Kind == policy.SketchInt8 { // codes lie in memory
					o.KVBudgetBytes = 1000 << 10
				}
				tight := indexed(t, block, o)
				if d := fakes.Worst(want, forced(t, tight, prompt, next)); d != 0 {
					t.Errorf("logits differ by %g", d)
				}
				if p := tight.KV().PeakBytes; p > o.KVBudgetBytes {
					t.Errorf("%d bytes in host memory, %d are allowed", p, o.KVBudgetBytes)
				}
				if store.Stats().WrittenBytes == 0 {
					t.Error("nothing went below")
				}
			})
		}
	}
}

// TestIndexerRefused: what has no indexer, or cannot have one beside it, is refused by name.
func TestIndexerRefused(t *testing.T) {
	t.Parallel()
	e := mixed(t, Options{Policy: "indexer"})
	if _, err := e.NewSession(e.Policy()); !errors.Is(err, policy.ErrModel) || !strings.Contains(err.Error(), "no trained indexer") {
		t.Errorf("a model without one: %v", err)
	}
	for want, o := range map[string]Options{"a trained indexer": {Backend: "gorgonia"}, "keys lie behind": {Rotate: RotateKeys}} {
		m := fakes.Indexed(3, 4)
		m.Layer[0], m.Layer[1] = m.Layer[2], m.Layer[2]
		m.Layer[0].Owner, m.Layer[1].Owner, m.Layer[0].Rope, m.Layer[1].Rope = 0, 1, 0, 0
		m.Params.Layers[0], m.Params.Layers[1] = m.Params.Layers[2], m.Params.Layers[2]
		o.Threads = 1
		if _, err := Open(m, o); !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// Keys and values in 8 bits: of the index too, where values are not keys.
	m := fakes.Indexed(3, 4)
	m.Layer[0] = model.LayerConfig{Attention: model.Attention{Owner: 0, Rope: -1}, Delta: m.Layer[1].Delta}
	m.Params.Layers[0] = m.Params.Layers[1]
	q := openOn(t, m, Options{Threads: 2, KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true})
	forced(t, q, fakes.IDs(150, 1), fakes.IDs(5, 2))
}
