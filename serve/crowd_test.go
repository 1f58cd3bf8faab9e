package serve

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/internal/tierspec"
	"terrace/kvmanager/contexts"
)

// The tests here are of many clients: -soak 10000 makes them as many as docs/server.md counts, and takes minutes.

// crowded says whether figures are wanted, not only that all goes well: times of few are chance.
func crowded() bool { return *soak >= 10000 }

// narrow is a listener whose connections hold little that the client has not read.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(4 << 10)
	}
	return c, err
}

// limited serves b's handler under the limits of infer serve, to its narrow connections.
func (b *bench) limited() (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	h := &http.Server{Handler: b.Handler()}
	Limit(h)
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(narrow{l}) }()
	b.t.Cleanup(func() { h.Close(); <-ended })
	return l.Addr().String()
}

// dial opens a connection, sends what is given, and leaves it open until the test ends.
func (b *bench) dial(address, sends string) net.Conn {
	b.t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := io.WriteString(c, sends); err != nil {
		b.t.Fatal(err)
	}
	return c
}

func posted(body string) string {
	return fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// firstTokens is how long n requests, one after the other, wait for the first event of their streams, sorted.
func (b *bench) firstTokens(address string, n int) (waits []time.Duration) {
	b.t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range n {
		began := time.Now()
		r, err := client.Post("http://"+address+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt": "probe %d of those who read", "max_tokens": 4, "stream": true}`, i)))
		if err != nil {
			b.t.Fatal(err)
		}
		line, err := bufio.NewReader(r.Body).ReadString('\n')
		waits = append(waits, time.Since(began))
		if err != nil || r.StatusCode != 200 || !strings.HasPrefix(line, "data: ") {
			b.t.Fatalf("probe %d: %d %q %v", i, r.StatusCode, line, err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	slices.Sort(waits)
	return waits
}

func quantileOf(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// TestSlowClients: headers and bodies that come a byte at a time, and streams that nobody reads, cost others nothing: they are
// served as before, and each of the slow is shown the door in its time.
func TestSlowClients(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{Batch: 64, Queue: 512})
	address := b.limited()
	loris, deaf, probes := max(10, *soak/20), max(2, *soak/200), max(20, *soak/20)
	b.firstTokens(address, probes) // to warm up
	goroutines, before := runtime.NumGoroutine(), b.firstTokens(address, probes)
	heap, began := heapBytes(), time.Now()
	var slow []net.Conn
	for i := range loris {
		sends := "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: a"
		if i%2 == 1 {
			sends = strings.TrimSuffix(posted(strings.Repeat(" ", 1000)), strings.Repeat(" ", 990))
		}
		slow = append(slow, b.dial(address, sends))
	}
	for i := range deaf {
		b.dial(address, posted(fmt.Sprintf(`{"prompt": "a stream that nobody reads", "max_tokens": 480, "ignore_eos": true, "logprobs": 20, "n": %d, "stream": true}`, []int{4, 1}[min(i, 1)])))
	}
	until(t, "streams that nobody reads are there", func() bool { running, _ := b.counts(); return running > 0 })
	until(t, "they are made, or given up", b.stand(0, 0))
	ended := make([]time.Duration, len(slow))
	var wg sync.WaitGroup
	if crowded() {
		for i, c := range slow {
			wg.Go(func() { // until the server ends it
				_, _ = io.Copy(io.Discard, c)
				ended[i] = time.Since(began)
			})
			wg.Go(func() {
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for range tick.C {
					if _, err := io.WriteString(c, "a"); err != nil {
						return
					}
				}
			})
		}
	}
	during := b.firstTokens(address, probes)
	held := heapBytes() - heap
	quiet, crowd := quantileOf(before, 0.99), quantileOf(during, 0.99)
	t.Logf("%d slow, %d deaf; first token of %d others p50 %v and %v, p99 %v and %v; heap %d KiB more", loris, deaf, probes, quantileOf(before, 0.5), quantileOf(during, 0.5), quiet, crowd, held>>10)
	if most := int64(loris+deaf) * (maxUnreadBytes + 64<<10); held > most {
		t.Errorf("%d MiB of heap for them, want at most %d", held>>20, most>>20)
	}
	if !crowded() {
		return
	}
	if crowd > 2*quiet {
		t.Errorf("p99 %v with slow clients, %v without", crowd, quiet)
	}
	wg.Wait()
	for i, took := range ended {
		if limit := []time.Duration{headerTimeout, bodyTimeout}[i%2]; took > limit+3*time.Second {
			t.Errorf("slow client %d was let go after %v, want %v", i, took, limit)
		}
	}
	until(t, "nothing runs or waits", b.stand(0, 0))
	until(t, "streams that nobody reads have ended", func() bool { return runtime.NumGoroutine() <= goroutines+8 })
	t.Logf("let go after: headers %v, bodies %v; all gone after %v", slices.Max(evenOf(ended, 0)), slices.Max(evenOf(ended, 1)), time.Since(began).Round(time.Second))
}

// evenOf is every second one from the first or the second.
func evenOf(list []time.Duration, from int) (out []time.Duration) {
	for i := from; i < len(list); i += 2 {
		out = append(out, list[i])
	}
	return out
}

// TestBehind: a reader that is too far behind its stream has left; a prompt's echo is no stream, nor is what waits for the end.
func TestBehind(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		stopped := false
		p := newReply(&Request{Prompts: [][]int{{1}}}, func() { stopped = true })
		p.bounded = bounded
		echo := Event{Echo: true, Text: strings.Repeat("x", 2*maxUnreadBytes)}
		p.add(echo, nil)
		if _, _, err := p.Next(t.Context()); err != nil || stopped {
			t.Fatalf("an echo: %v", err)
		}
		for range 3 * maxUnreadBytes / 1000 {
			p.add(Event{Text: strings.Repeat("x", 1000)}, nil)
		}
		events, _, err := p.Next(t.Context())
		if stopped != bounded || bounded != (asError(err).Status == statusGone) || bounded == (len(events) > 0) {
			t.Errorf("bounded %t: stopped %t, %d events, %v", bounded, stopped, len(events), err)
		}
	}
}

// TestLeavers: of clients that leave while they wait, while their prompts are read, or while they read, nothing is left a second
// later: neither a request nor a page of KV.
func TestLeavers(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{Batch: 4, Queue: 64})
	leavers, wave := max(30, *soak/10), 10
	long, slowest := strings.Repeat("a long prompt ", 34), time.Duration(0)
	inUse := func() (n int64) {
		if err := b.Call(func(e *engine.Engine) error { n = e.KV().InUseBytes; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for done := 0; done < leavers; done += wave {
		var leave []func()
		for i := range wave {
			prompt := []string{"a short prompt", long}[i%2]
			answer, left := b.open(fmt.Sprintf(`{"prompt": %q, "max_tokens": 480, "ignore_eos": true, "stream": %t}`, prompt[:min(len(prompt), 20+rand.IntN(450))], i%3 > 0))
			if leave = append(leave, left); i == 1 && done%3 == 0 {
				_, _ = answer.ReadString('\n') // it decodes
			}
		}
		until(t, "they are there", func() bool { running, _ := b.counts(); return running > 0 })
		for _, left := range leave {
			left()
		}
		left := time.Now()
		until(t, "nothing runs or waits", func() bool { return b.stand(0, 0)() && inUse() == 0 })
		slowest = max(slowest, time.Since(left))
	}
	t.Logf("%d left; the slowest %d were gone after %v", leavers, wave, slowest)
	if slowest > time.Second {
		t.Errorf("they were gone after %v, want a second", slowest)
	}
	for _, line := range strings.Split(metricsOf(t, b), "\n") {
		if strings.HasPrefix(line, "terrace_requests_total{") && strings.Contains(line, `code="5`) {
			t.Error(line)
		}
	}
}

func metricsOf(t *testing.T, b *bench) string {
	t.Helper()
	r, err := http.Get(b.http.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	out, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestIsolation: what one key or salt has stored is not found under another, and the time to the first token does not tell that it
// is there; under its own it does, so that the test sees it.
func TestIsolation(t *testing.T) {
	spec, err := tierspec.Parse("host=256MiB")
	if err != nil {
		t.Fatal(err)
	}
	store, err := contexts.Open(t.Context(), []contexts.Spec{spec}, contexts.Options{Rule: contexts.Rule{Wait: true}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, engine.Options{Context: 512}, Options{Batch: 1, Queue: 8, Keys: []string{"mine", "yours"}}, func(e *engine.Engine) {
		if _, err := prefixcache.Use(e, store, "small"); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = store.Close() })
	ask := func(key, salt, prompt string) (took float64, cached int) {
		r, err := http.NewRequest(http.MethodPost, b.http.URL+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"prompt": %q, "max_tokens": 1, "cache_salt": %q}`, prompt, salt)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		began := time.Now()
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		out, err := io.ReadAll(a.Body)
		took = time.Since(began).Seconds()
		var c completion
		if err != nil || json.Unmarshal(out, &c) != nil || c.Usage == nil {
			t.Fatalf("%d %s %v", a.StatusCode, out, err)
		}
		return took, c.Usage.PromptDetails.CachedTokens
	}
	kinds := []struct {
		name, key, salt string
		cached          bool
	}{{"its own", "mine", "", true}, {"another key", "yours", "", false}, {"another salt", "mine", "other", false}}
	known, fresh := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	for i := range max(12, *soak/20) {
		k := kinds[i%len(kinds)]
		prompt := func(what string) string { return fmt.Sprintf("%s %d %s", what, i, strings.Repeat("some words ", 38)) }
		ask("mine", "", prompt("known"))
		if err := store.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"known", "fresh"} {
			took, cached := ask(k.key, k.salt, prompt(what))
			if (cached > 0) != (k.cached && what == "known") {
				t.Fatalf("%s, %s: %d tokens were cached", k.name, what, cached)
			}
			at := &known[i%len(kinds)]
			if what == "fresh" {
				at = &fresh[i%len(kinds)]
			}
			*at = append(*at, took)
		}
	}
	for i, k := range kinds {
		p := rankTest(known[i], fresh[i])
		t.Logf("%s: %d probes, p = %.3g that known and fresh prompts take equally long", k.name, 2*len(known[i]), p)
		if crowded() && (p < 0.01) != k.cached {
			t.Errorf("%s: p = %g", k.name, p)
		}
	}
}

// rankTest is the two-sided probability of Mann and Whitney's U, by its normal limit.
func rankTest(a, b []float64) float64 {
	u := 0.0
	for _, x := range a {
		for _, y := range b {
			switch {
			case x > y:
				u++
			case x == y:
				u += 0.5
			}
		}
	}
	n, m := float64(len(a)), float64(len(b))
	z := (u - n*m/2) / math.Sqrt(n*m*(n+m+1)/12)
	return math.Erfc(math.Abs(z) / math.Sqrt2)
}
