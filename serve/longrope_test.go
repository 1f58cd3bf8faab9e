package serve

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"terrace/engine"
	"terrace/model"
)

// turnsAt gives an engine's model a second set of rotary frequencies for texts beyond a length.
func turnsAt(e *engine.Engine, tokens int) {
	m := e.Model()
	m.Ropes = slices.Clone(m.Ropes)
	r := &m.Ropes[0]
	r.LongAt, r.LongFreq = tokens, slices.Clone(r.InvFreq)
	for i := range r.LongFreq {
		r.LongFreq[i] /= float32(2 + i)
	}
}

// TestLongRope: texts of a batch that pass the length where the model turns all positions again are read again in parts, and are what they are
// alone: with room for all, and where memory has room for two of them.
func TestLongRope(t *testing.T) {
	const each = 2 * 32 * 2 * 2 // K and V, f16, one head of 32, 2 layers
	for name, budget := range map[string]int64{"room": 0, "pressure": each * 304} {
		t.Run(name, func(t *testing.T) {
			var turned int
			b := newBenchWith(t, engine.Options{Context: 400, KVBudgetBytes: budget}, Options{Batch: 6, Queue: 64}, func(e *engine.Engine) { turnsAt(e, 100) })
			turnsAt(b.alone, 100)
			step := b.loop.batch
			b.loop.batch = func(sessions []*engine.Session, ids []int) error {
				for _, s := range sessions {
					if s.Turns(1) {
						turned++
					}
				}
				return step(sessions, ids)
			}
			prompt := func(i int) string { return fmt.Sprintf("the text of request %d, and of no other", i) }
			policies := []string{"full", "h2o:budget=50%", "snapkv:budget=50%,window=8"}
			var wants []string
			for i := range 9 {
				wants = append(wants, b.want(policies[i%3], prompt(i), 40+20*i%120, model.SamplerOptions{Temperature: 0.7, TopP: 1, TopPSet: true, Seed: uint64(i)}))
			}
			var wg sync.WaitGroup
			held := make(chan struct{})
			wg.Go(func() { // no step before all are there
				_ = b.Call(func(*engine.Engine) error {
					close(held)
					for came := b.stand(0, len(wants)); !came() && !t.Failed(); {
						runtime.Gosched()
					}
					return nil
				})
			})
			<-held
			for i, want := range wants {
				wg.Go(func() {
					status, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": %d, "temperature": 0.7, "seed": %d, "kv_policy": %q}`, jsonText(prompt(i)), 40+20*i%120, i, policies[i%3]))
					if status != 200 {
						t.Errorf("request %d: %d %s", i, status, out)
					} else if have := textOf(t, out); have != want {
						t.Errorf("request %d under %s: %q, want %q", i, policies[i%3], have, want)
					}
				})
			}
			wg.Wait()
			if turned > 0 {
				t.Errorf("%d texts were read again within a step of others", turned)
			}
			if n := valueIn(t, b, "terrace_num_preemptions_total"); (n == 0) != (budget == 0) {
				t.Errorf("%v preemptions", n)
			}
		})
	}
}
