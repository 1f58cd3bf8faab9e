package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/golden"
	"terrace/kvmanager"
	kvfakes "terrace/kvmanager/fakes"
	"terrace/offload"
)

// leastOf is the size that a refusal names.
func leastOf(t *testing.T, err error) int64 {
	t.Helper()
	var e *kvmanager.BudgetError
	if !errors.As(err, &e) {
		t.Fatalf("no size is named: %v", err)
	}
	return e.NeedBytes
}

// TestRoomByTiming: whether a request fits host memory does not depend on how fast the tier is. The size that a
// refusal names suffices, and so does every larger one, under policies that keep an index and a token cache too.
func TestRoomByTiming(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "quest:budget=96", "hillinfer:alpha=0.2", "sparq:budget=96,sketch=storage", "leoam:budget=60,chunk=4,coarse=8,sketch=storage",
		"retroinfer:cluster=8,update=8,recent=4,retrieval=10%,estimation=50%"} {
		t.Run(name, func(t *testing.T) {
			probe := small(t, Options{Threads: 2, ChunkTokens: 64, Policy: name})
			shape := probe.shape()
			least := leastOf(t, onSlow(t, name, shape, 4096, 1))
			if again := leastOf(t, onSlow(t, name, shape, least-5*4096, 1)); again != least {
				t.Errorf("less memory names another size than %d: %d", least, again)
			}
			for i := range uint64(3) {
				if i == 1 && !golden.Thorough() {
					continue
				}
				bytes := least + least*int64(i)/5
				var outcomes []error
				for seed := range 3 - i {
					outcomes = append(outcomes, onSlow(t, name, shape, bytes, 10*i+seed))
				}
				for _, err := range outcomes {
					if (err == nil) != (outcomes[0] == nil) || err != nil && !errors.Is(err, kvmanager.ErrBudget) {
						t.Errorf("%d bytes: by timing %v or %v", bytes, outcomes[0], err)
					}
				}
				if outcomes[0] != nil {
					t.Errorf("%d bytes suffice, with %d: %v", least, bytes, outcomes[0])
				}
			}
		})
	}
}

// TestLeastOfClusters: what retroinfer needs of host memory grows with the tokens that wait to be grouped by what a step reads of them in one
// layer, not by copies in all; it runs in the least that a refusal names, past the step that groups them, and one page less is
// refused in one line with the same size.
func TestLeastOfClusters(t *testing.T) {
	t.Parallel()
	const tokens = 420
	read := func(update int, bytes int64, next int) error {
		o := Options{Threads: 2, ChunkTokens: 32, Policy: fmt.Sprintf("retroinfer:cluster=8,segment=1k,recent=8,update=%d", update)}
		want := forced(t, small(t, o), fakes.IDs(tokens, 1), fakes.IDs(next, 2))
		o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: bytes}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 16 << 20}}
		e := small(t, o)
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), fakes.IDs(tokens, 1), PrefillHooks{}); err != nil {
			return err
		}
		for i, id := range fakes.IDs(next, 2) {
			if err := s.Decode(id); err != nil {
				t.Fatalf("update=%d in %d bytes: step %d of a text whose prompt was accepted: %v", update, bytes, i, err)
			}
			if d := fakes.Worst(want[i+1:i+2], [][]float32{s.Logits()}); d != 0 {
				t.Fatalf("update=%d in %d bytes: step %d: logits differ by %g", update, bytes, i, d)
			}
		}
		if p := e.KV().PeakBytes; p > bytes {
			t.Errorf("update=%d: %d bytes in host memory, the budget is %d", update, p, bytes)
		}
		return nil
	}
	least := map[int]int64{}
	for update, steps := range map[int]int{40: 60, 256: 4} { // 60 are past the step that groups 40
		least[update] = leastOf(t, read(update, 64<<10, 1))
		err := read(update, least[update]-4096, 1)
		if again := leastOf(t, err); again != least[update] || strings.Contains(err.Error(), "\n") {
			t.Errorf("update=%d: %d bytes are the least, and one page less says %v", update, least[update], err)
		}
		if err := read(update, least[update], steps); err != nil {
			t.Errorf("update=%d: %d bytes suffice: %v", update, least[update], err)
		}
	}
	e := small(t, Options{})
	layer := int64((256 - 40) * e.KVBytesPerToken() / e.m.Layers)
	if more := least[256] - least[40]; more > 4*layer {
		t.Errorf("216 tokens more that wait take %d bytes more, want at most four times %d, what a layer has of them", more, layer)
	}
}

// TestRoomForIndex: the size that a refusal names holds what the tier's index grows by while the prompt is read: the first one is
// the last one.
func TestRoomForIndex(t *testing.T) {
	t.Parallel()
	prompt := fakes.IDs(1500, 1)
	read := func(bytes int64) error {
		o := Options{Threads: 2, ChunkTokens: 32, Context: 2048, Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: bytes}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 16 << 20}}}
		got := 0
		err := prefillOf(t, small(t, o), prompt, &got)
		if err != nil && got > 0 {
			t.Errorf("%d bytes: %d tokens read, then %v", bytes, got, err)
		}
		return err
	}
	least := leastOf(t, read(64<<10))
	if err := read(least); err != nil {
		t.Errorf("%d bytes suffice: %v", least, err)
	}
}

// onSlow reads a prompt and takes steps over a tier that is slow now and then, by a seed.
func onSlow(t *testing.T, name string, shape offload.Shape, bytes int64, seed uint64) error {
	store := kvfakes.New(shape.Layers, shape.Page)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 3))
	store.Delay = func(bool, []offload.Record) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.IntN(2)*rng.IntN(300)) * time.Microsecond
	}
	e := small(t, Options{Threads: 2, ChunkTokens: 64, Policy: name, Store: store, Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: bytes}}})
	s, err := e.NewSession(e.Policy())
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), fakes.IDs(400, 1), PrefillHooks{}); err != nil {
		return err
	}
	for i, id := range fakes.IDs(20, 2) {
		if err := s.Decode(id); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// TestRoomForPrompt: without a tier below, a prompt whose KV does not fit is refused before it is read, and the size named suffices.
func TestRoomForPrompt(t *testing.T) {
	t.Parallel()
	prompt := fakes.IDs(600, 1)
	tight := small(t, Options{ChunkTokens: 64, KVBudgetBytes: 256 << 10})
	read := 0
	err := prefillOf(t, tight, prompt, &read)
	var mib int64
	if !errors.Is(err, kvmanager.ErrBudget) || read > 0 {
		t.Fatalf("%d tokens read: %v", read, err)
	}
	if _, serr := fmt.Sscanf(err.Error()[strings.Index(err.Error(), "host=")+5:], "%dMiB", &mib); serr != nil {
		t.Fatalf("no size is named: %v", err)
	}
	if err := prefillOf(t, small(t, Options{ChunkTokens: 64, KVBudgetBytes: mib << 20}), prompt, &read); err != nil || read != len(prompt) {
		t.Errorf("host=%dMiB: %d read, %v", mib, read, err)
	}
}

func prefillOf(t *testing.T, e *Engine, prompt []int, read *int) error {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Prefill(t.Context(), prompt, PrefillHooks{Progress: func(done, _ int) { *read = done }})
}
