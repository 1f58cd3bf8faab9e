package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"terrace/engine"
	"terrace/kvmanager"
	"terrace/model"
)

// until waits for something that other goroutines bring about.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 2000 {
		if holds() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s: not after 10 s", what)
}

func (b *bench) counts() (running, waiting int) {
	b.loop.mu.Lock()
	defer b.loop.mu.Unlock()
	return b.loop.begun, b.loop.jobs - b.loop.begun
}

func (b *bench) stand(running, waiting int) func() bool {
	return func() bool { r, w := b.counts(); return r == running && w == waiting }
}

const endless = `{"prompt": "a text without an end", "max_tokens": 400, "ignore_eos": true, "stream": %t}`

// open begins a request that goes on for long; leave ends it from the client's side.
func (b *bench) open(body string) (answer *bufio.Reader, leave func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.http.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	pr, pw := io.Pipe()
	go func() {
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			pw.CloseWithError(err)
			return
		}
		_, err = io.Copy(pw, a.Body)
		a.Body.Close()
		pw.CloseWithError(err)
	}()
	b.t.Cleanup(cancel)
	return bufio.NewReader(pr), func() { cancel(); pr.Close() }
}

// slowly has each step of the loop wait, so that a request is long enough to see.
func (b *bench) slowly(d time.Duration) {
	b.loop.crash = func(what string) {
		if what == "step" {
			time.Sleep(d)
		}
	}
}

// TestGone: who leaves is not served any more: while decoding, whole and streamed, with several choices, and in the queue; the
// queue has room again, and nothing is left (the bench checks KV).
func TestGone(t *testing.T) {
	b := newBench(t, engine.Options{Context: 500}, Options{Batch: 1, Queue: 1})
	b.slowly(time.Millisecond)
	for _, body := range []string{fmt.Sprintf(endless, true), fmt.Sprintf(endless, false), strings.Replace(fmt.Sprintf(endless, true), "{", `{"n": 3, `, 1)} {
		_, leave := b.open(body)
		until(t, "one runs", b.stand(1, 0))
		_, leave2 := b.open(fmt.Sprintf(endless, true))
		until(t, "one waits", b.stand(1, 1))
		if status, out := b.post("/v1/completions", `{"prompt": "a"}`); status != http.StatusTooManyRequests {
			t.Errorf("a full queue: %d %s", status, out)
		}
		leave2()
		until(t, "the queue is empty", b.stand(1, 0))
		leave()
		until(t, "nothing runs", b.stand(0, 0))
	}
	if status, _ := b.post("/v1/completions", `{"prompt": "a", "max_tokens": 2}`); status != 200 {
		t.Errorf("afterwards: %d", status)
	}
}

// TestDrain: what runs ends whole, what is new is refused, and health says so.
func TestDrain(t *testing.T) {
	b := newBench(t, engine.Options{Context: 500}, Options{Batch: 2, Queue: 4})
	b.slowly(time.Millisecond)
	answer, _ := b.open(fmt.Sprintf(endless, true))
	if _, err := answer.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := b.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
	until(t, "draining", b.draining.Load)
	if status, _ := b.post("/v1/completions", `{"prompt": "a"}`); status != 503 {
		t.Errorf("a new request: %d, want 503", status)
	}
	if r, err := http.Get(b.http.URL + "/health"); err != nil || r.StatusCode != 503 {
		t.Errorf("health: %v %v", r, err)
	}
	rest, err := io.ReadAll(answer)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") || !strings.Contains(string(rest), `"finish_reason":"length"`) {
		t.Errorf("what ran did not end whole: %v", err)
	}
	wg.Wait()
}

// TestGraceIsOver: what still runs at the end of the time to drain ends with an error in the stream.
func TestGraceIsOver(t *testing.T) {
	b := newBench(t, engine.Options{Context: 500}, Options{Batch: 2, Queue: 4})
	b.slowly(5 * time.Millisecond)
	answer, _ := b.open(fmt.Sprintf(endless, true))
	if _, err := answer.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Drain(ctx); err == nil {
		t.Error("drained though one runs")
	}
	b.Close()
	rest, _ := io.ReadAll(answer)
	if !strings.Contains(string(rest), "overloaded_error") || strings.Contains(string(rest), "[DONE]") {
		t.Errorf("the stream ends with %q", rest[max(0, len(rest)-200):])
	}
}

// TestShortInABatch: where one of a batch has no memory and others got their step, the youngest leaves with its token, and texts are
// what they are alone.
func TestShortInABatch(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Batch: 4, Queue: 16})
	calls := 0
	b.loop.batch = func(sessions []*engine.Session, ids []int) error {
		if calls++; calls%5 != 0 || len(sessions) < 2 {
			return b.loop.e.DecodeBatch(sessions, ids)
		}
		short := &engine.BatchError{Errors: make([]error, len(sessions))}
		short.Errors[0] = kvmanager.ErrBudget
		if err := b.loop.e.DecodeBatch(sessions[1:], ids[1:]); err != nil {
			return err
		}
		return short
	}
	var wg sync.WaitGroup
	var wants [6]string
	prompt := func(i int) string { return fmt.Sprintf("the text of request %d", i) }
	for i := range wants {
		wants[i] = b.want("full", prompt(i), 60, model.SamplerOptions{Temperature: 0.7, TopP: 1, TopPSet: true, Seed: uint64(i)})
	}
	for i, want := range wants {
		wg.Go(func() {
			status, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 60, "temperature": 0.7, "seed": %d}`, jsonText(prompt(i)), i))
			if status != 200 {
				t.Errorf("request %d: %d %s", i, status, out)
			} else if have := textOf(t, out); have != want {
				t.Errorf("request %d: %q, want %q", i, have, want)
			}
		})
	}
	wg.Wait()
	if n := valueIn(t, b, "terrace_num_preemptions_total"); n == 0 {
		t.Error("nothing was swapped out: the test sees nothing")
	}
}

// TestMemoryPressure: where memory has room for two texts of eight, the youngest leave it and come back; no request fails, and
// texts are what they are alone. What can never fit is refused at once.
func TestMemoryPressure(t *testing.T) {
	const each = 2 * 32 * 2 * 2 // K and V, f16, one head of 32, 2 layers
	b := newBench(t, engine.Options{Context: 400, KVBudgetBytes: each * 304}, Options{Batch: 8, Queue: 64})
	var wg sync.WaitGroup
	var wants []string
	prompt := func(i int) string { return fmt.Sprintf("the text of request %d", i) }
	for i := range 10 {
		wants = append(wants, b.want("full", prompt(i), 120, model.SamplerOptions{Temperature: 0.7, TopP: 1, TopPSet: true, Seed: uint64(i)}))
	}
	for i, want := range wants {
		wg.Go(func() {
			status, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 120, "temperature": 0.7, "seed": %d}`, jsonText(prompt(i)), i))
			if status != 200 {
				t.Errorf("request %d: %d %s", i, status, out)
			} else if have := textOf(t, out); have != want {
				t.Errorf("request %d: %q, want %q", i, have, want)
			}
		})
	}
	wg.Wait()
	if n := valueIn(t, b, "terrace_num_preemptions_total"); n == 0 {
		t.Error("nothing was swapped out: the test sees nothing")
	}
	status, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 200}`, jsonText(strings.Repeat("x", 190))))
	if status != 400 || !strings.Contains(out, "304") {
		t.Errorf("what never fits: %d %s, want 400 and the room", status, out)
	}
}

// valueIn reads a metric without labels.
func valueIn(t *testing.T, b *bench, name string) (v float64) {
	t.Helper()
	r, err := http.Get(b.http.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for scan := bufio.NewScanner(r.Body); scan.Scan(); {
		if rest, ok := strings.CutPrefix(scan.Text(), name+" "); ok {
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestKeysAndHosts: every route but health needs a key, all refusals are the same, and names of other machines are not served.
func TestKeysAndHosts(t *testing.T) {
	b := newBench(t, engine.Options{Context: 100}, Options{Keys: []string{"a-good-key", "another-key"}})
	ask := func(path, header, value, host string) (int, string) {
		t.Helper()
		r, _ := http.NewRequest(http.MethodGet, b.http.URL+path, nil)
		if header != "" {
			r.Header.Set(header, value)
		}
		if host != "" {
			r.Host = host
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		out, _ := io.ReadAll(a.Body)
		return a.StatusCode, string(out)
	}
	_, refusal := ask("/v1/models", "", "", "")
	for _, c := range []struct {
		path, header, value, host string
		status                    int
	}{
		{"/v1/models", "", "", "", 401}, {"/v1/models", "Authorization", "Bearer a-good-ke", "", 401}, {"/v1/models", "Authorization", "a-good-key", "", 401},
		{"/v1/models", "Authorization", "Bearer ", "", 401}, {"/metrics", "", "", "", 401}, {"/nothing", "", "", "", 401}, {"/v1/models", "X-Api-Key", "a-bad-key", "", 401},
		{"/v1/models", "Authorization", "Bearer a-good-key", "", 200}, {"/v1/models", "X-Api-Key", "another-key", "", 200}, {"/health", "", "", "", 200},
		{"/health", "", "", "evil.com", 403}, {"/health", "", "", "127.0.0.1.evil.com", 403}, {"/health", "", "", "localhost:99", 200}, {"/health", "", "", "[::1]:99", 200}, {"/health", "", "", "127.8.9.1", 200},
	} {
		if status, out := ask(c.path, c.header, c.value, c.host); status != c.status || status == 401 && out != refusal {
			t.Errorf("%+v: %d %s", c, status, out)
		}
	}
}

// TestAccounts: what clients were told of is what the metrics count.
func TestAccounts(t *testing.T) {
	b := newBench(t, engine.Options{Context: 200}, Options{Batch: 3, Queue: 64})
	var mu sync.Mutex
	var prompt, made int
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			_, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": "request %d", "max_tokens": %d, "n": %d, "seed": 1}`, i, 1+i%7, 1+i%3))
			var c completion
			if err := decodeJSON([]byte(strings.TrimSpace(out)), &struct{ *completion }{&c}); err != nil {
				t.Errorf("%s: %v", out, err)
				return
			}
			mu.Lock()
			prompt, made = prompt+c.Usage.PromptTokens, made+c.Usage.CompletionTokens
			mu.Unlock()
		})
	}
	wg.Wait()
	if p, g := valueIn(t, b, "terrace_prompt_tokens_total"), valueIn(t, b, "terrace_generation_tokens_total"); p != float64(prompt) || g != float64(made) {
		t.Errorf("metrics count %g and %g tokens, clients were told %d and %d", p, g, prompt, made)
	}
	if r, w := valueIn(t, b, "terrace_num_requests_running"), valueIn(t, b, "terrace_num_requests_waiting"); r != 0 || w != 0 {
		t.Errorf("%g run, %g wait", r, w)
	}
}
