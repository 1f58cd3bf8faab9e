package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"terrace/engine/draft"
	"terrace/engine/fakes"
	"terrace/internal/golden"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
)

// mixed is an engine of the model whose layers all differ.
func mixed(t testing.TB, o Options) *Engine {
	t.Helper()
	if o.Threads == 0 {
		o.Threads = 2
	}
	return openOn(t, fakes.Mixed(3), o)
}

// wide is an engine of a model whose rows carry more than the residual, streams is one whose rows are several streams as well.
func wide(t testing.TB, o Options) *Engine     { return openOn(t, fakes.Wide(3, false), o) }
func streamed(t testing.TB, o Options) *Engine { return openOn(t, fakes.Wide(3, true), o) }

// eachDiffering runs a test on the models whose layers differ.
func eachDiffering(t *testing.T, test func(t *testing.T, open func(t testing.TB, o Options) *Engine)) {
	t.Parallel()
	for name, open := range map[string]func(t testing.TB, o Options) *Engine{"mixed": mixed, "wide": wide, "streams": streamed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open)
		})
	}
}

// TestMixedAnyWay: a text of a model with windows, shared and latent keys and state, or of one whose rows carry more than the residual,
// computes the same bits in chunks of any size, alone and beside others, in pages of any size.
func TestMixedAnyWay(t *testing.T) { eachDiffering(t, anyWay) }

func anyWay(t *testing.T, mixed func(t testing.TB, o Options) *Engine) {
	prompt, next := fakes.IDs(150, 1), fakes.IDs(12, 2)
	want := forced(t, mixed(t, Options{}), prompt, next)
	for _, o := range []Options{{ChunkTokens: 1}, {ChunkTokens: 7}, {ChunkTokens: 64, Threads: 3}, {PageTokens: 48, ChunkTokens: 33}, {WindowOnly: true, ChunkTokens: 16}} {
		t.Run(fmt.Sprintf("chunk %d page %d", o.ChunkTokens, o.PageTokens), func(t *testing.T) {
			if d := fakes.Worst(want, forced(t, mixed(t, o), prompt, next)); d != 0 {
				t.Errorf("logits differ by %g", d)
			}
		})
	}
	t.Run("batch", func(t *testing.T) {
		e := mixed(t, Options{})
		var sessions []*Session
		for i := range 3 {
			s, err := e.NewSession(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ids := prompt
			if i != 1 {
				ids = fakes.IDs(20+i, uint64(i))
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
				t.Fatalf("step %d in a batch differs", i)
			}
		}
	})
}

// TestMixedForkAndBack: forks go on as if they were alone, and a text that is taken back, to where its state is known or not, goes on as
// one that was never longer.
func TestMixedForkAndBack(t *testing.T) { eachDiffering(t, forkAndBack) }

func forkAndBack(t *testing.T, mixed func(t testing.TB, o Options) *Engine) {
	prompt, next := fakes.IDs(90, 1), fakes.IDs(10, 2)
	e := mixed(t, Options{ChunkTokens: 32})
	want := forced(t, e, prompt, next)
	s, err := e.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	f, err := s.Fork(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, id := range next {
		if err := errors.Join(f.Decode(id), s.Decode(next[len(next)-1-i])); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.Logits(), want[i+1]) {
			t.Fatalf("step %d of the fork differs", i)
		}
	}
	for _, n := range []int{len(prompt) + 4, len(prompt), 64, 70, 3, 0} {
		if err := f.Rewind(n); err != nil {
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
				t.Fatalf("back to %d: the logits after token %d differ", n, i)
			}
		}
	}
}

// TestMixedSpeculation: guesses that were wrong leave no trace in the state.
func TestMixedSpeculation(t *testing.T) { eachDiffering(t, speculationOfDiffering) }

func speculationOfDiffering(t *testing.T, mixed func(t testing.TB, o Options) *Engine) {
	prompt, more := slices.Concat(fakes.IDs(40, 1), fakes.IDs(40, 1)), fakes.IDs(5, 3)
	e := mixed(t, Options{Context: 1024})
	request := Request{IDs: prompt, MaxTokens: 60}
	plain, after := speculated(t, e, "full", request, more)
	all := slices.Concat(prompt, plain.IDs)
	for name, d := range map[string]draft.Drafter{"right": &oracle{ids: all, rng: rand.New(rand.NewPCG(1, 1))}, "mixed": &oracle{ids: all, spoil: 0.3, rng: rand.New(rand.NewPCG(2, 2))},
		"wrong": &oracle{ids: all, spoil: 1, rng: rand.New(rand.NewPCG(3, 3))}} {
		request.Speculate = d
		got, then := speculated(t, e, "full", request, more)
		if !slices.Equal(got.IDs, plain.IDs) || !reflect.DeepEqual(then, after) {
			t.Errorf("%s: another text: %v, want %v", name, got.IDs, plain.IDs)
		}
	}
}

// mixedPolicies act on layers that differ.
var mixedPolicies = []string{"full", "h2o:budget=40", "snapkv:budget=50", "tova:budget=40", "quest:budget=48", "topk:budget=40", "hillinfer:guess_from=0,alpha=0.4", "streaming_llm", "knorm:ratio=0.5", "sparq", "leoam:budget=48", "kvzip:ratio=0.5", "kvzip_plus:ratio=0.5",
	"minference", "pyramidkv:budget=40"}

// TestMixedOnTiers: with most of its KV below host memory such a model computes the same bits, under policies too, and what is kept in
// memory stays within its budget, state included.
func TestMixedOnTiers(t *testing.T) { eachDiffering(t, tiersOfDiffering) }

func tiersOfDiffering(t *testing.T, mixed func(t testing.TB, o Options) *Engine) {
	prompt, next := fakes.IDs(300, 1), fakes.IDs(9, 2)
	for i, name := range mixedPolicies {
		if (i+len(t.Name()))%2 != 0 && !golden.Thorough() { // each on one kind of model at least
			continue
		}
		t.Run(strings.ReplaceAll(name, ":", " of "), func(t *testing.T) {
			t.Parallel()
			o := Options{Policy: name, ChunkTokens: 32}
			e := mixed(t, o)
			want := forced(t, e, prompt, next)
			store, err := offload.NewMemory("below", e.shape(), 0)
			if err != nil {
				t.Fatal(err)
			}
			o.Store, o.KVBudgetBytes = store, 1<<20
			tight := mixed(t, o)
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

// TestMixedRefused: what such a model cannot do is refused by name, before anything is read.
func TestMixedRefused(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"a gated DeltaNet, which layer 1 of mixed has": {Backend: "gorgonia"},
		"latent keys, which are its values too":        {KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true},
		"not turned by a matrix":                       {Rotate: RotateValues},
	} {
		o.Threads = 1
		if _, err := Open(fakes.Mixed(3), o); !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, name := range []string{"sliminfer:layers=3,keep=64", "lazyllm:layers=3,keep=50%", "pqcache:subvectors=3"} {
		e, err := Open(fakes.Mixed(3), Options{Threads: 1, Policy: name})
		if err == nil {
			_, err = e.NewSession(e.Policy())
			_ = e.Close()
		}
		if !errors.Is(err, policy.ErrModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
