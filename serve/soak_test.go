package serve

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/kvmanager/contexts"
	"terrace/model"
)

// soak is how many requests TestSoak sends: go test ./serve -run Soak -soak 10000
var soak = flag.Int("soak", 300, "requests of TestSoak")

// TestSoak: requests of every kind on 64 connections, each with a prompt of its own: all are answered as they are alone, none is
// lost or crossed, what clients were told is what the metrics count, and nothing grows; so it is with a cache of prompts and answers that
// holds a part of them.
func TestSoak(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		soakServer(t, newBench(t, engine.Options{Context: 128}, Options{Batch: 16, Queue: 256}), "")
	})
	t.Run("cache", func(t *testing.T) {
		store, err := contexts.Open(t.Context(), []contexts.Spec{{Kind: "host", CapacityBytes: 1 << 20}}, contexts.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b := newBenchWith(t, engine.Options{Context: 512}, Options{Batch: 16, Queue: 256}, func(e *engine.Engine) {
			cache, err := prefixcache.Use(e, store, "small")
			if err != nil {
				t.Fatal(err)
			}
			cache.KeepAnswers()
		})
		t.Cleanup(func() { _ = store.Close() })
		soakServer(t, b, strings.Repeat("what comes before ", 8))
		if hits := valueIn(t, b, "terrace_prompt_tokens_cached_total"); hits == 0 {
			t.Error("nothing was found in the cache")
		}
	})
	t.Run("placement", func(t *testing.T) { // of which no form but the whole is worth anything: it is moved, and texts stay
		b, store := newPlacementBench(t, "evicpress:alpha=1000000,methods=knorm,keeps=0.5", "", likeness{worthless: true}, contexts.Spec{Kind: "host", CapacityBytes: 200 << 10}, contexts.Spec{Kind: "ssd", Place: t.TempDir(), CapacityBytes: 1 << 20})
		soakServer(t, b, strings.Repeat("what comes before ", 8))
		settled(t, b)
		if hits, moves := valueIn(t, b, "terrace_prompt_tokens_cached_total"), valueIn(t, b, "terrace_placement_moves_total"); hits == 0 || moves == 0 {
			t.Errorf("%g tokens were found, %g contexts moved", hits, moves)
		}
		for i, tier := range store.Tiers() {
			if _, peak := store.On(i).Held(); peak > tier.CapacityBytes {
				t.Errorf("%s held %d of %d bytes", tier.Kind, peak, tier.CapacityBytes)
			}
		}
	})
}

// soakServer sends requests whose prompts begin in one of three ways.
func soakServer(t *testing.T, b *bench, before string) {
	const streams, marks = 64, 24
	var prompts, wants []string
	for i := range marks {
		prompts = append(prompts, fmt.Sprintf("%smarker %d %s", strings.Repeat(before, 1+i%3), i, strings.Repeat("x", i)))
		wants = append(wants, b.want("full", prompts[i], 8, model.SamplerOptions{}))
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	t.Cleanup(client.CloseIdleConnections)
	var prompt, made, gone, refused atomic.Int64
	one := func(i int) error {
		kind, mark := i%8, rand.IntN(marks)
		body := fmt.Sprintf(`{"prompt": %s, "max_tokens": 8, "temperature": 0, "stream": %t, "stream_options": %s}`, jsonText(prompts[mark]), kind >= 4, map[bool]string{true: `{"include_usage": true}`, false: "null"}[kind >= 4])
		if kind == 3 {
			body = `{"prompt": "a", "what": 1}`
		}
		r, err := client.Post(b.http.URL+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if kind == 7 { // leaves after the first bytes
			gone.Add(1)
			_, err := r.Body.Read(make([]byte, 10))
			return err
		}
		out, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
			return err
		case kind == 3:
			refused.Add(1)
			if r.StatusCode != 400 {
				return fmt.Errorf("a bad request: %d", r.StatusCode)
			}
			return nil
		case r.StatusCode != 200:
			return fmt.Errorf("%d %s", r.StatusCode, out)
		}
		text, usage := "", (*openAIUsage)(nil)
		frames := []string{string(out)}
		if kind >= 4 {
			frames = strings.Split(strings.TrimSuffix(withoutComments(string(out)), "data: [DONE]\n\n"), "\n\n")
		}
		for _, f := range frames {
			if f = strings.TrimPrefix(f, "data: "); f == "" {
				continue
			}
			var c completion
			if err := json.Unmarshal([]byte(f), &c); err != nil {
				return fmt.Errorf("%s: %w", f, err)
			}
			if len(c.Choices) > 0 {
				text += c.Choices[0].Text
			}
			if c.Usage != nil {
				usage = c.Usage
			}
		}
		if text != wants[mark] || usage == nil {
			return fmt.Errorf("marker %d: %q with usage %v, want %q", mark, text, usage, wants[mark])
		}
		prompt.Add(int64(usage.PromptTokens))
		made.Add(int64(usage.CompletionTokens))
		return nil
	}
	run := func(n int) {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range streams {
			wg.Go(func() {
				for i := next.Add(1); i <= int64(n); i = next.Add(1) {
					if err := one(int(i)); err != nil {
						t.Errorf("request %d: %v", i, err)
						return
					}
				}
			})
		}
		wg.Wait()
		until(t, "nothing runs or waits", b.stand(0, 0))
	}
	goroutines := runtime.NumGoroutine()
	run(*soak / 4)
	heap, rss := heapBytes(), residentKiB()
	began := time.Now()
	run(*soak)
	client.CloseIdleConnections() // three goroutines each
	until(t, fmt.Sprintf("nearly as few goroutines as the %d before", goroutines), func() bool { return runtime.NumGoroutine() <= goroutines+32 })
	if n := heapBytes(); n > heap+16<<20 {
		t.Errorf("%d MiB of heap, %d before", n>>20, heap>>20)
	}
	g, p := int64(valueIn(t, b, "terrace_generation_tokens_total")), int64(valueIn(t, b, "terrace_prompt_tokens_total"))
	if left := gone.Load(); g < made.Load() || g > made.Load()+8*left || p < prompt.Load() {
		t.Errorf("metrics count %d and %d tokens, clients were told %d and %d, and %d left", p, g, prompt.Load(), made.Load(), left)
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil && len(files) > 4*streams {
		t.Errorf("%d files are open", len(files))
	}
	t.Logf("%d requests in %v; with the %d before, %d left and %d were refused; heap %d to %d KiB, resident %d to %d KiB", *soak,
		time.Since(began).Round(time.Millisecond), *soak/4, gone.Load(), refused.Load(), heap>>10, heapBytes()>>10, rss, residentKiB())
}

// residentKiB is this process's resident memory; 0 where the system does not tell.
func residentKiB() (kib int64) {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			fmt.Sscan(rest, &kib)
		}
	}
	return kib
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestGoneInAPrompt: who leaves while a prompt is read is not served any more.
func TestGoneInAPrompt(t *testing.T) {
	b := newBench(t, engine.Options{Context: 500}, Options{Batch: 2, Queue: 4})
	parts := atomic.Int64{}
	b.loop.crash = func(what string) {
		if what == "prompt" {
			parts.Add(1)
			time.Sleep(10 * time.Millisecond)
		}
	}
	_, leave := b.open(fmt.Sprintf(`{"prompt": %s, "max_tokens": 2, "echo": true, "logprobs": 1, "stream": true}`, jsonText(strings.Repeat("y", 480))))
	until(t, "the prompt is being read", func() bool { return parts.Load() >= 2 })
	leave()
	until(t, "nothing runs", b.stand(0, 0))
	if n := parts.Load(); n >= 480/echoRowsTokens {
		t.Errorf("the prompt was read in %d parts, to its end", n)
	}
}
