package serve

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"terrace/engine"
	"terrace/engine/draft"
	"terrace/engine/prefixcache"
	"terrace/kvmanager/contexts"
	"terrace/model"
)

// TestGuesses: texts that are read with guesses are those without, alone and while others come and leave, sampled and greedy, with KV
// that is kept for later requests; and guesses are read and chosen.
func TestGuesses(t *testing.T) {
	store, err := contexts.Open(t.Context(), []contexts.Spec{{Kind: "host", CapacityBytes: 16 << 20}}, contexts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, engine.Options{Context: 600}, Options{Batch: 4, Queue: 32, Speculate: func() draft.Drafter { return draft.NewNGram() }}, func(e *engine.Engine) {
		cache, err := prefixcache.Use(e, store, "small")
		if err != nil {
			t.Fatal(err)
		}
		cache.KeepAnswers()
	})
	t.Cleanup(func() { _ = store.Close() })
	prompt := strings.Repeat("one two three ", 6)
	ask := func(prompt, want string, n int, o model.SamplerOptions) {
		_, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": %d, "temperature": %g, "seed": %d, "top_p": 1}`, jsonText(prompt), n, o.Temperature, o.Seed))
		if have := textOf(t, out); have != want {
			t.Errorf("%d tokens at %g: %q, want %q", n, o.Temperature, have, want)
		}
	}
	greedy, hot := model.SamplerOptions{}, model.SamplerOptions{Temperature: 0.7, Seed: 3, TopP: 1, TopPSet: true}
	ask(prompt, b.want("full", prompt, 200, greedy), 200, greedy)
	ask(prompt+"four", b.want("full", prompt+"four", 60, hot), 60, hot)
	drafted, accepted := valueIn(t, b, "terrace_spec_decode_num_draft_tokens_total"), valueIn(t, b, "terrace_spec_decode_num_accepted_tokens_total")
	if drafted == 0 || accepted == 0 || accepted > drafted {
		t.Errorf("%g guesses read, %g chosen", drafted, accepted)
	}
	// Others join while guesses are ahead of a text's tokens.
	b.slowly(time.Millisecond)
	lately := strings.Repeat("late ", 40)
	long, late := b.want("full", prompt, 200, greedy), []string{}
	for i := range 4 {
		late = append(late, b.want("full", lately+fmt.Sprint(i), 12, greedy))
	}
	var wg sync.WaitGroup
	wg.Go(func() { ask(prompt, long, 200, greedy) })
	for i := range late {
		before := valueIn(t, b, "terrace_generation_tokens_total")
		until(t, "the long text goes on alone", func() bool { return valueIn(t, b, "terrace_generation_tokens_total") >= before+4 })
		ask(lately+fmt.Sprint(i), late[i], 12, greedy)
	}
	wg.Wait()
	b.slowly(0)
	for i := range 12 {
		prompt, n := fmt.Sprint(prompt, i), 10+17*(i%5)
		want := b.want("full", prompt, n, greedy)
		wg.Go(func() { ask(prompt, want, n, greedy) })
	}
	wg.Wait()
}
