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
	"terrace/internal/tierspec"
	"terrace/kvmanager/contexts"
	"terrace/model"
	"terrace/policy"
)

// TestStore: a prompt's beginning that was read before is not computed again, within a salt; texts are what they are without a
// store, and the accounts say what was reused.
func TestStore(t *testing.T) {
	spec, err := tierspec.Parse("host=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	store, err := contexts.Open(t.Context(), []contexts.Spec{spec}, contexts.Options{Rule: contexts.Rule{Wait: true}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, engine.Options{Context: 500}, Options{Batch: 2, Queue: 8}, func(e *engine.Engine) {
		if _, err := prefixcache.Use(e, store, "small"); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = store.Close() })
	prefix, cached := strings.Repeat("what they share ", 20), 0
	for i, c := range []struct {
		tail, salt string
		reused     bool
	}{{"one", "", false}, {"two", "", true}, {"two", "other", false}, {"three", "other", true}} {
		want := b.want("full", prefix+c.tail, 12, model.SamplerOptions{})
		_, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 12, "temperature": 0, "cache_salt": %q}`, jsonText(prefix+c.tail), c.salt))
		if have := textOf(t, out); have != want {
			t.Errorf("request %d: %q, want %q", i, have, want)
		}
		var got completion
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		n := got.Usage.PromptDetails.CachedTokens
		cached += n
		if tier := map[bool]string{true: "host"}[c.reused]; (n >= 256) != c.reused || !c.reused && n != 0 || got.Timings.CacheN != n || got.Timings.CacheTier != tier || got.Timings.PromptN+n != got.Usage.PromptTokens {
			t.Errorf("request %d: %d cached tokens, timings %+v", i, n, *got.Timings)
		}
		if err := store.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := valueIn(t, b, "terrace_prompt_tokens_cached_total"); n != float64(cached) {
		t.Errorf("metrics count %g cached tokens, clients were told %d", n, cached)
	}
}

// TestStoreAnswers: a text that goes on from an answer reads what is new, where answers are kept.
func TestStoreAnswers(t *testing.T) {
	for _, answers := range []bool{true, false} {
		spec, err := tierspec.Parse("host=16MiB")
		if err != nil {
			t.Fatal(err)
		}
		store, err := contexts.Open(t.Context(), []contexts.Spec{spec}, contexts.Options{Rule: contexts.Rule{Wait: true}})
		if err != nil {
			t.Fatal(err)
		}
		b := newBenchWith(t, engine.Options{Context: 700}, Options{Batch: 2, Queue: 8}, func(e *engine.Engine) {
			cache, err := prefixcache.Use(e, store, "small")
			if err != nil {
				t.Fatal(err)
			}
			if answers {
				cache.KeepAnswers()
			}
		})
		t.Cleanup(func() { _ = store.Close() })
		prompt := make([]int, 100)
		for i := range prompt {
			prompt[i] = 5 + i
		}
		ask := func(ids []int) (got completion) {
			_, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 100, "temperature": 0, "ignore_eos": true, "return_token_ids": true}`, strings.ReplaceAll(fmt.Sprint(ids), " ", ",")))
			if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Choices) != 1 {
				t.Fatalf("%v: %s", err, out)
			}
			if err := store.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			return got
		}
		first := ask(prompt)
		want := map[bool]int{true: 192, false: 64}[answers]
		if next := ask(append(prompt, first.Choices[0].TokenIDs...)); next.Usage.PromptDetails.CachedTokens != want {
			t.Errorf("answers kept %v: %d of %d tokens cached, want %d", answers, next.Usage.PromptDetails.CachedTokens, next.Usage.PromptTokens, want)
		}
	}
}

// TestStoreTogether: of requests that come at once with the same beginning one reads it, and the others find it; those under another
// salt, and prompts that share little, wait for nobody. Texts are those of each alone.
func TestStoreTogether(t *testing.T) {
	spec, err := tierspec.Parse("host=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	store, err := contexts.Open(t.Context(), []contexts.Spec{spec}, contexts.Options{Rule: contexts.Rule{Wait: true}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, engine.Options{Context: 900, ChunkTokens: 64}, Options{Batch: 8, Queue: 16}, func(e *engine.Engine) {
		if _, err := prefixcache.Use(e, store, "small"); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = store.Close() })
	all := make(chan struct{}) // are there, before one has read
	b.loop.crash = func(what string) {
		if what == "prompt" {
			<-all
		}
	}
	prefix := strings.Repeat("what they share ", 40)
	prompts := make([]string, 6)
	for i := range prompts {
		prompts[i] = prefix + strings.Repeat(fmt.Sprint("tail ", i, " "), 3)
	}
	var wg sync.WaitGroup
	cached := make([]int, len(prompts)+1)
	for i := range cached {
		salt, prompt := "", prompts[min(i, len(prompts)-1)]
		if i == len(prompts) {
			salt = "other"
		}
		want := b.want("full", prompt, 4, model.SamplerOptions{})
		wg.Go(func() {
			_, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 4, "temperature": 0, "cache_salt": %q}`, jsonText(prompt), salt))
			var got completion
			if err := json.Unmarshal([]byte(out), &got); err != nil || textOf(t, out) != want {
				t.Errorf("request %d: %v: %q, want %q", i, err, out, want)
				return
			}
			cached[i] = got.Usage.PromptDetails.CachedTokens
		})
	}
	until(t, "all are there", func() bool { running, waiting := b.counts(); return running+waiting == len(cached) })
	close(all)
	wg.Wait()
	read := 0
	for _, n := range cached[:len(prompts)] {
		if n == 0 {
			read++
		} else if n < 512 {
			t.Errorf("%v tokens cached, want all that is shared", cached)
		}
	}
	if read != 1 || cached[len(prompts)] != 0 {
		t.Errorf("%v tokens cached: %d requests have read the beginning, want 1; under a salt of its own: want 0", cached, read)
	}
}

// lateStore has stored nothing before it is told so.
type lateStore struct {
	engine.PrefixCache
	done atomic.Bool
}

// Stored implements engine.PrefixCache.
func (s *lateStore) Stored(ids []int, tokens int, under *policy.Spec, salt string) bool {
	return s.done.Load() && s.PrefixCache.Stored(ids, tokens, under, salt)
}

// TestStoreAfterItsReader: a prompt waits until its beginning is stored, also where who has read that has left.
func TestStoreAfterItsReader(t *testing.T) {
	store, err := contexts.Open(t.Context(), []contexts.Spec{{Kind: "host", CapacityBytes: 16 << 20}}, contexts.Options{Rule: contexts.Rule{Wait: true}})
	if err != nil {
		t.Fatal(err)
	}
	late := &lateStore{}
	b := newBenchWith(t, engine.Options{Context: 900, ChunkTokens: 64}, Options{Batch: 8, Queue: 16}, func(e *engine.Engine) {
		c, err := prefixcache.Use(e, store, "small")
		if err != nil {
			t.Fatal(err)
		}
		late.PrefixCache = c
		e.SetPrefixCache(late)
	})
	t.Cleanup(func() { _ = store.Close() })
	both := make(chan struct{})
	b.loop.crash = func(what string) {
		if what == "prompt" {
			<-both
		}
	}
	prefix := strings.Repeat("what they share ", 40)
	ask := func(tail string) completion {
		_, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 4, "temperature": 0}`, jsonText(prefix+tail)))
		var got completion
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return got
	}
	var first, second sync.WaitGroup
	first.Go(func() { ask("the first") })
	until(t, "one is there", b.stand(1, 0))
	var got completion
	second.Go(func() { got = ask("the second") })
	until(t, "both are there", b.stand(1, 1))
	close(both)
	first.Wait()
	for range 3 { // steps go on
		if err := b.Call(func(*engine.Engine) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if !b.stand(0, 1)() {
		t.Error("the second has begun before its beginning was stored")
	}
	late.done.Store(true)
	second.Wait()
	if got.Usage.PromptDetails.CachedTokens < 512 {
		t.Errorf("%d tokens cached", got.Usage.PromptDetails.CachedTokens)
	}
}
