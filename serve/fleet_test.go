package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"terrace/engine"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/serve/meter/prom"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

// fleetBench is a fleet of members a to d on the small model, each of 10 bytes; d cannot be loaded.
type fleetBench struct {
	t      *testing.T
	url    string
	mu     sync.Mutex
	slow   bool     // steps of who is loaded now take a millisecond
	loaded []string // what is loaded, oldest first
}

func newFleetBench(t *testing.T, bytes int64, o FleetOptions) *fleetBench {
	t.Helper()
	b := &fleetBench{t: t}
	for _, name := range []string{"a", "b", "c", "d"} {
		m := Member{Names: []string{name}, Bytes: 10, Open: func() (*Server, func(), error) { return b.open(name, o.Front.Keys) }}
		e, _, end := fleetModel(t)
		m.Model = e.Model()
		end()
		if name == "c" {
			m.Patterns = []string{"gpt-*"}
		}
		o.Members = append(o.Members, m)
	}
	o.Bytes = bytes
	o.Front.Meter = prom.New
	f, err := NewFleet(o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(f.Handler())
	t.Cleanup(func() {
		h.Close()
		f.Close()
		if len(b.loaded) > 0 {
			t.Errorf("%v are still loaded", b.loaded)
		}
	})
	b.url = h.URL
	return b
}

// fleetModel is an engine on the small model.
func fleetModel(t *testing.T) (*engine.Engine, *tokenizer.Tokenizer, func()) {
	path, err := smallModel()
	if err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(m, engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.FromModel(file.Meta(), "")
	if err != nil {
		t.Fatal(err)
	}
	v.ChatTemplate = testTemplate
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	return e, tok, func() { e.Close(); file.Close() }
}

func (b *fleetBench) open(name string, keys []string) (*Server, func(), error) {
	if name == "d" {
		return nil, nil, errors.New("it is damaged")
	}
	e, tok, end := fleetModel(b.t)
	s, err := New(Options{Engine: e, Tokenizer: tok, Names: []string{name}, Patterns: []string{"gpt-*"}, Keys: keys, Meter: prom.New})
	if b.slow {
		(&bench{t: b.t, Server: s}).slowly(time.Millisecond)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loaded = append(b.loaded, name)
	return s, func() {
		end()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.loaded = slices.DeleteFunc(b.loaded, func(n string) bool { return n == name })
	}, err
}

func (b *fleetBench) holds() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.loaded, " ")
}

func (b *fleetBench) do(method, path, body string, header ...string) (int, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, string(out)
}

func ask(name string) string {
	return fmt.Sprintf(`{"prompt": "one two three", "max_tokens": 6, "temperature": 0, "model": %q}`, name)
}

// TestFleet: a request's model is loaded when it is asked for, those used longest ago leave, and texts are those of one server.
func TestFleet(t *testing.T) {
	b := newFleetBench(t, 25, FleetOptions{})
	if b.holds() != "a" {
		t.Errorf("at first %q is loaded", b.holds())
	}
	single := newBench(t, engine.Options{}, Options{})
	want := single.want("full", "one two three", 6, model.SamplerOptions{})
	for _, step := range []struct {
		name   string
		status int
		holds  string
	}{{"a", 200, "a"}, {"b", 200, "a b"}, {"a", 200, "a b"}, {"c", 200, "a c"}, {"", 404, "a c"}, {"nobody", 404, "a c"}, {"gpt-5", 200, "a c"}, {"b:latest", 404, "a c"}, {"d", 503, "c"}, {"b", 200, "c b"}, {"a", 200, "b a"}} {
		body := ask(step.name)
		if step.name == "" {
			body = `{"prompt": "one", "model": 5}`
			step.status = 400
		}
		status, out := b.do("POST", "/v1/completions", body)
		if status != step.status || status == 200 && textOf(t, out) != want || b.holds() != step.holds {
			t.Errorf("model %q: %d, want %d; loaded %q, want %q: %s", step.name, status, step.status, b.holds(), step.holds, out)
		}
	}
	for path, words := range map[string][]string{"/v1/models": {`"a"`, `"b"`, `"c"`, `"d"`}, "/api/tags": {`"a"`, `"d"`}, "/v1/models/c": {`"id":"c"`}, "/health": {"ok"}, "/": {"<html"},
		"/metrics": {`terrace_requests_total{code="200",model="b",route="/v1/completions"}`, "go_goroutines"}} {
		status, out := b.do("GET", path, "")
		for _, w := range words {
			if status != 200 || !strings.Contains(out, w) {
				t.Errorf("GET %s: %d, no %s: %.200s", path, status, w, out)
			}
		}
	}
	if status, out := b.do("GET", "/api/ps", ""); status != 200 || !strings.Contains(out, `"a"`) || strings.Contains(out, `"c"`) {
		t.Errorf("GET /api/ps: %d %s", status, out)
	}
	if status, out := b.do("POST", "/api/generate", `{"model": "nobody", "prompt": "x"}`); status != 404 || !strings.HasPrefix(out, `{"error":"`) {
		t.Errorf("an Ollama client: %d %s", status, out)
	}
}

// TestFleetBusy: a member that answers stays; who finds no room waits until it has ended, or leaves.
func TestFleetBusy(t *testing.T) {
	b := newFleetBench(t, 10, FleetOptions{})
	b.slow = true
	if status, _ := b.do("POST", "/v1/completions", ask("b")); status != 200 || b.holds() != "b" {
		t.Fatalf("b: %d, loaded %q", status, b.holds())
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", b.url+"/v1/completions", strings.NewReader(`{"prompt": "one", "model": "a", "max_tokens": 200, "ignore_eos": true, "stream": true}`))
	if err != nil {
		t.Fatal(err)
	}
	long, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer long.Body.Close()
	if _, err := io.ReadFull(long.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if r, err = http.NewRequestWithContext(impatient, "POST", b.url+"/v1/completions", strings.NewReader(ask("b"))); err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(r); err == nil {
		res.Body.Close()
		t.Errorf("b answers %d beside a, in the room of one", res.StatusCode)
	}
	waited := make(chan string)
	go func() {
		status, _ := b.do("POST", "/v1/completions", ask("b"))
		waited <- fmt.Sprint(status, " ", b.holds())
	}()
	all, err := io.ReadAll(long.Body)
	if err != nil || !strings.Contains(string(all), "[DONE]") {
		t.Errorf("a's answer: %v: %.100s", err, all)
	}
	if got := <-waited; got != "200 b" {
		t.Errorf("b, once a has answered: %s", got)
	}
}

// TestFleetRefuses: keys are asked for before anything is loaded; a member larger than the bound is no member.
func TestFleetRefuses(t *testing.T) {
	b := newFleetBench(t, 10, FleetOptions{Front: Options{Keys: []string{"sk-1"}}})
	if status, _ := b.do("POST", "/v1/completions", ask("b")); status != 401 || b.holds() != "a" {
		t.Errorf("without a key: %d, loaded %q", status, b.holds())
	}
	if status, _ := b.do("POST", "/v1/completions", ask("b"), "Authorization", "Bearer sk-1"); status != 200 || b.holds() != "b" {
		t.Errorf("with a key: %d, loaded %q", status, b.holds())
	}
	if status, _ := b.do("GET", "/v1/models", "", "Host", "evil.example"); status != 401 {
		t.Errorf("the list without a key: %d", status)
	}
	broken := errors.New("it is broken")
	if _, err := NewFleet(FleetOptions{Members: []Member{{Names: []string{"x"}, Open: func() (*Server, func(), error) { return nil, nil, broken }}}}); !errors.Is(err, broken) || err.Error() != broken.Error() {
		t.Errorf("a first member that cannot be loaded: %v", err)
	}
	if _, err := NewFleet(FleetOptions{Members: []Member{{Names: []string{"x"}, Bytes: 11}}, Bytes: 10}); !errors.Is(err, kvmanager.ErrBudget) {
		t.Errorf("a member that never fits: %v", err)
	}
}
