package serve

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/engine/shelf"
	"terrace/kvmanager/contexts"
	"terrace/model"
	"terrace/policy"
)

// likeness is a shelf.Quality by which all answers are as good, or as bad; scored is called before each, if it is set.
type likeness struct {
	scored    func()
	worthless bool
}

func (likeness) Name() string { return "all" }

func (l likeness) Scores(pred, _ []string) ([]float64, error) {
	if l.scored != nil {
		l.scored()
	}
	out := make([]float64, len(pred))
	for i := range out {
		if !l.worthless {
			out[i] = 1
		}
	}
	return out, nil
}

// newPlacementBench is a server that keeps contexts on tiers as a placement says.
func newPlacementBench(t *testing.T, placement, index string, quality shelf.Quality, specs ...contexts.Spec) (*bench, *contexts.Store) {
	t.Helper()
	p, err := policy.ParsePlacement(placement)
	if err != nil {
		t.Fatal(err)
	}
	store, err := contexts.Open(t.Context(), specs, contexts.Options{Rule: contexts.Rule{Wait: true}, Write: contexts.WritePlaced})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	reader := &shelf.Reader{Quality: quality, MaxTokens: 4}
	b := newBenchWith(t, engine.Options{Context: 900, ChunkTokens: 64}, Options{Batch: 4, Queue: 256}, func(e *engine.Engine) {
		cache, err := prefixcache.Use(e, store, "small")
		if err != nil {
			t.Fatal(err)
		}
		reader.Engine, reader.Cache = e, cache
		if _, err := shelf.NewKeeper(shelf.KeeperOptions{Reader: reader, Store: store, Placement: p, Index: index, Notice: func(line string) { t.Error(line) }}); err != nil {
			t.Fatal(err)
		}
	})
	reader.Tokenizer = b.tok
	return b, store
}

// asked is one answer with what its reply says of the store.
func (b *bench) asked(prompt string) (text string, got completion) {
	b.t.Helper()
	_, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 6, "temperature": 0}`, jsonText(prompt)))
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Choices) != 1 || got.Timings == nil {
		b.t.Errorf("%v: %s", err, out)
		return "", completion{Timings: &timingsJSON{}}
	}
	return got.Choices[0].Text, got
}

// measured waits until so many contexts are measured, and all is put where it belongs.
func measured(t *testing.T, b *bench, n float64) {
	t.Helper()
	until(t, "contexts are measured", func() bool { return valueIn(t, b, "terrace_placement_profiles_total") >= n })
	settled(t, b)
}

// settled waits until the server rests.
func settled(t *testing.T, b *bench) {
	t.Helper()
	if err := b.Call(func(*engine.Engine) error {
		for b.loop.keeper.Work(t.Context()) {
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// document is n different bytes' worth of text.
func document(seed, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d is what %d says; ", (seed+3)*(i*i+7)%997, i*seed)
	}
	return b.String()[:n]
}

// TestPlacement: contexts that requests share are kept; while nobody is served they are measured, compressed and placed within the tiers. Texts are
// those of each alone where their contexts were whole, which the timings say; so it is with many at once.
func TestPlacement(t *testing.T) {
	const capacity = 300 << 10 // of about 700 KiB
	b, store := newPlacementBench(t, "evicpress:alpha=0.000001,methods=knorm/keydiff,keeps=0.5/0.25", "", likeness{}, contexts.Spec{Kind: "host", CapacityBytes: capacity}, contexts.Spec{Kind: "ssd", Place: t.TempDir(), CapacityBytes: 64 << 20})
	var prompts, want []string
	for i := range 4 {
		for q := range 3 {
			prompts = append(prompts, document(i, 400)+fmt.Sprint(" question ", q, "?"))
			want = append(want, b.want("full", prompts[len(prompts)-1], 6, model.SamplerOptions{}))
		}
	}
	var mu sync.Mutex
	whole, compressed := 0, 0
	round := func(together bool) {
		var wg sync.WaitGroup
		for i, p := range prompts {
			ask := func() {
				text, got := b.asked(p)
				mu.Lock()
				defer mu.Unlock()
				tm := got.Timings
				switch {
				case tm.CacheMethod != "":
					compressed++
					if tm.CacheN == 0 || tm.CacheKeep != 0.5 && tm.CacheKeep != 0.25 || got.Usage.PromptDetails.CachedTokens != tm.CacheN {
						t.Errorf("prompt %d: timings %+v, usage %+v", i, *tm, got.Usage)
					}
				case text != want[i]:
					t.Errorf("prompt %d, %d tokens of a whole context: %q, alone %q", i, tm.CacheN, text, want[i])
				case tm.CacheN > 0:
					whole++
				}
			}
			if together {
				wg.Go(ask)
			} else {
				ask()
			}
		}
		wg.Wait()
	}
	round(true)
	round(false)
	if whole == 0 {
		t.Error("no context was found whole")
	}
	measured(t, b, 4)
	round(true)
	round(false)
	if compressed == 0 {
		t.Error("no context was found compressed")
	}
	settled(t, b)
	for i, tier := range store.Tiers() {
		if _, peak := store.On(i).Held(); peak > tier.CapacityBytes {
			t.Errorf("%s held %d of %d bytes", tier.Kind, peak, tier.CapacityBytes)
		}
	}
	until(t, "the metrics say so", func() bool {
		return valueIn(t, b, "terrace_placement_moves_total") > 0 && valueIn(t, b, "terrace_placement_profile_seconds_total") > 0
	})
}

// TestPlacementAgain: a server that starts on the ssd of an earlier one finds its contexts.
func TestPlacementAgain(t *testing.T) {
	dir := t.TempDir()
	const placement = "evicpress:alpha=0,methods=knorm,keeps=0.5"
	first, store := newPlacementBench(t, placement, dir, likeness{}, contexts.Spec{Kind: "ssd", Place: dir, CapacityBytes: 64 << 20})
	prompt := document(1, 400) + " what?"
	first.asked(prompt)
	first.asked(document(1, 400) + " who?")
	measured(t, first, 1)
	text, got := first.asked(prompt)
	if got.Timings.CacheMethod != "knorm" || got.Timings.CacheTier != "ssd" {
		t.Fatalf("timings %+v", *got.Timings)
	}
	first.Close()
	if err := first.loop.keeper.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	second, _ := newPlacementBench(t, placement, dir, likeness{}, contexts.Spec{Kind: "ssd", Place: dir, CapacityBytes: 64 << 20})
	again, now := second.asked(prompt)
	if again != text || now.Timings.CacheN != got.Timings.CacheN || now.Timings.CacheMethod != "knorm" {
		t.Errorf("after a restart %q, timings %+v; before %q, %+v", again, *now.Timings, text, *got.Timings)
	}
}

// TestPlacementYields: a request that comes while a context is measured is answered before the next form of it is.
func TestPlacementYields(t *testing.T) {
	var scores atomic.Int64
	var b *bench
	begun, came := make(chan struct{}), make(chan struct{})
	b, _ = newPlacementBench(t, "evicpress:methods=knorm/keydiff/snapkv,keeps=0.75/0.5/0.25", "", likeness{scored: func() {
		switch scores.Add(1) {
		case 1:
			close(begun)
			<-came
		case 2:
			if running, waiting := b.counts(); running+waiting > 0 {
				t.Errorf("%d requests run and %d wait while another form is measured", running, waiting)
			}
		}
	}}, contexts.Spec{Kind: "host", CapacityBytes: 64 << 20})
	b.asked(document(1, 400))
	<-begun
	answered := make(chan struct{})
	go func() {
		b.asked("a short one")
		close(answered)
	}()
	until(t, "the request is there", func() bool { _, waiting := b.counts(); return waiting == 1 })
	close(came)
	<-answered
	measured(t, b, 1)
	if n := scores.Load(); n != 9 {
		t.Errorf("%d forms were measured, want 9: what was measured stays", n)
	}
}

// TestPlacementTooSmall: what no tier has room for is computed.
func TestPlacementTooSmall(t *testing.T) {
	b, store := newPlacementBench(t, "evicpress", "", likeness{}, contexts.Spec{Kind: "host", CapacityBytes: 10 << 10})
	prompt := document(1, 400)
	want := b.want("full", prompt, 6, model.SamplerOptions{})
	for range 3 {
		text, got := b.asked(prompt)
		if text != want || got.Timings.CacheN != 0 {
			t.Errorf("%q, want %q; %+v", text, want, *got.Timings)
		}
		settled(t, b)
	}
	if now, _ := store.On(0).Held(); now != 0 {
		t.Errorf("%d bytes are held", now)
	}
}
