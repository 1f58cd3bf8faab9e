package serve

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"terrace/engine"
)

// TestTurns: next is the oldest of the key that has used least; who leaves while it waits is forgotten.
func TestTurns(t *testing.T) {
	ts := newTurns(1)
	first, err := ts.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	waits := func(n int) func() bool {
		return func() bool { ts.mu.Lock(); defer ts.mu.Unlock(); return len(ts.waiting) == n }
	}
	order := make(chan string, 4)
	for i, key := range []string{"a", "a", "b"} {
		go func() {
			w, err := ts.take(t.Context(), key)
			if err != nil {
				t.Error(err)
				return
			}
			order <- fmt.Sprint(key, i)
			w.end()
		}()
		until(t, "it waits", waits(i+1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := ts.take(ctx, "c"); gone <- err }()
	until(t, "the fourth waits", waits(4))
	cancel()
	if err := <-gone; err == nil {
		t.Error("who leaves gets a turn")
	}
	ts.mu.Lock()
	first.started = first.started.Add(-turnLasts) // its turn has lasted
	ts.mu.Unlock()
	if err := first.pause(t.Context()); err != nil { // the others come first: b, which has used nothing, then a in order
		t.Fatal(err)
	}
	first.end()
	var have []string
	for range 3 {
		have = append(have, <-order)
	}
	if want := []string{"b2", "a0", "a1"}; !slices.Equal(have, want) {
		t.Errorf("%v, want %v", have, want)
	}
	until(t, "all are gone", func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return ts.free == 1 && len(ts.here) == 0 && len(ts.used) == 0
	})
	w, err := ts.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if w.pause(left) == nil {
		t.Error("work goes on that nobody wants")
	}
	w.end()
	if ts.free != 1 {
		t.Errorf("%d turns are free", ts.free)
	}
}

// TestLongPrompts: what cannot fit is refused before it is tokenised or rendered, and what it sent does not come back.
func TestLongPrompts(t *testing.T) {
	b := newBench(t, engine.Options{Context: 64}, Options{Queue: 4})
	many := strings.Repeat(`{"role": "user", "content": "a"}, `, 100)
	for path, body := range map[string]string{
		"/v1/completions":           `{"prompt": ` + jsonText(strings.Repeat("a", 7<<20)) + `}`,
		"/v1/chat/completions":      `{"messages": [{"role": "user", "content": ` + jsonText(strings.Repeat(" ", 7<<20)) + `}]}`,
		"/v1/messages/count_tokens": `{"messages": [` + strings.TrimSuffix(many, ", ") + `]}`,
		"/v1/responses":             `{"input": ` + jsonText(strings.Repeat("<", 1<<20)) + `}`,
		"/apply-template":           `{"messages": [` + strings.TrimSuffix(many, ", ") + `]}`,
		"/tokenize":                 `{"content": "a", "` + strings.Repeat("x", 1<<20) + `": 1}`,
		"/detokenize":               `{"tokens": "` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		if status, out := b.post(path, body); status != 400 || len(out) > 4<<10 {
			t.Errorf("%s: %d, %d bytes: %.200s", path, status, len(out), out)
		}
	}
	if status, out := b.post("/v1/completions", `{"prompt": "a", "kv_policy": "`+strings.Repeat("x", 1<<20)+`"}`); status != 400 || len(out) > 4<<10 || !strings.Contains(out, "kv_policy") {
		t.Errorf("%d, %d bytes", status, len(out))
	}
}
