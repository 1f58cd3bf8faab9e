package serve

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
)

// traceSink keeps timelines by request id.
type traceSink struct {
	mu   sync.Mutex
	made map[string]*bytes.Buffer
}

func (s *traceSink) create(id string) (io.WriteCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[id] = &bytes.Buffer{}
	return struct {
		io.Writer
		io.Closer
	}{s.made[id], io.NopCloser(nil)}, nil
}

// TestTraces: the timeline of a request has all its prompt's tokens, all its decode steps and where it waited, and no text.
func TestTraces(t *testing.T) {
	sink := &traceSink{made: map[string]*bytes.Buffer{}}
	b := newBench(t, engine.Options{}, Options{Traces: sink.create})
	status, got := b.post("/v1/completions", `{"prompt":"secretword","max_tokens":6,"n":2,"ignore_eos":true,"temperature":0}`)
	if status != 200 {
		t.Fatal(status, got)
	}
	if status, got := b.post("/v1/completions", `{"prompt":[]}`); status != 400 {
		t.Fatal(status, got)
	}
	b.http.Close() // handlers have ended
	sink.mu.Lock()
	defer sink.mu.Unlock()
	ids, err := b.tok.Encode("secretword", true, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(sink.made) != 1 {
		t.Fatalf("%d timelines, want 1: a refused request has none", len(sink.made))
	}
	for id, text := range sink.made {
		if !strings.HasPrefix(id, "req_") || strings.Contains(text.String(), "secret") {
			t.Errorf("%s: %s", id, text)
		}
		var file struct {
			Events []struct {
				Phase string         `json:"ph"`
				Name  string         `json:"name"`
				At    float64        `json:"ts"`
				Took  float64        `json:"dur"`
				Args  map[string]any `json:"args"`
			} `json:"traceEvents"`
		}
		if err := json.Unmarshal(text.Bytes(), &file); err != nil {
			t.Fatal(err)
		}
		spans, tokens, whole := map[string]int{}, 0., 0.
		for _, e := range file.Events {
			if e.Phase == "X" {
				spans[e.Name]++
				if n, ok := e.Args["tokens"].(float64); ok {
					tokens += n
				}
				if e.Name == "request" {
					whole = e.Took
				}
			}
		}
		begins, ends := map[string]float64{}, map[string]float64{}
		for _, e := range file.Events {
			if e.Phase == "X" {
				name, choice, _ := strings.Cut(e.Name, ", choice ")
				if at, ok := begins[name+choice]; !ok || e.At < at {
					begins[name+choice] = e.At
				}
				ends[name+choice] = max(ends[name+choice], e.At+e.Took)
			}
			if e.At < 0 || e.Took < 0 || e.Phase == "X" && e.At+e.Took > whole+1 {
				t.Errorf("%s from %v for %v µs of %v", e.Name, e.At, e.Took, whole)
			}
		}
		for _, choice := range []string{"0", "1"} { // it waits, is read, and only then decodes
			const rounding = 0.01 // µs
			if begins["prompt"+choice] < ends["queue"+choice]-rounding || begins["decode"+choice] < ends["prompt"+choice]-rounding || begins["sample"+choice] < ends["prompt"+choice]-rounding || ends["decode"+choice] <= begins["decode"+choice] {
				t.Errorf("choice %s: begins %v, ends %v", choice, begins, ends)
			}
		}
		want := 2 * len(ids) // each choice reads it
		if tokens != float64(want) || spans["decode, choice 0"] != 5 || spans["decode, choice 1"] != 5 || spans["sample, choice 1"] != 6 || spans["request"] != 1 || spans["queue, choice 0"] != 1 {
			t.Errorf("prompt tokens %v of %d, spans %v", tokens, want, spans)
		}
	}
}
