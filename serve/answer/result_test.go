package answer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// result is an answer put together again.
type result struct {
	thought, text string
	calls         []oneCall
	problems      []string
}

type oneCall struct {
	name, arguments string
	ended           bool
}

// String shows what a reader of the answer sees.
func (r result) String() string {
	s := fmt.Sprintf("thought %q text %q", r.thought, r.text)
	for _, c := range r.calls {
		s += fmt.Sprintf(" %s(%s)", c.name, c.arguments)
	}
	for _, p := range r.problems {
		s += " problem: " + p
	}
	return s
}

// readAll reads an answer that comes in pieces, and unites neighbouring events.
func readAll(f Form, tools []Tool, prompt string, pieces ...string) (all []Event) {
	p := f.Parser(tools, prompt)
	add := func(events []Event) {
		for _, e := range events {
			if n := len(all); n > 0 && e.Kind < CallEnd && e.Kind != CallStart && all[n-1].Kind == e.Kind && all[n-1].Index == e.Index {
				all[n-1].Text += e.Text
				continue
			}
			all = append(all, e)
		}
	}
	for _, piece := range pieces {
		add(p.Push(piece))
	}
	add(p.End())
	return all
}

// read puts events together, and checks their order.
func read(t testing.TB, all []Event) (r result) {
	t.Helper()
	open := -1
	for _, e := range all {
		switch e.Kind {
		case Thought:
			r.thought += e.Text
		case Text:
			r.text += e.Text
		case CallStart:
			if e.Index != len(r.calls) || open >= 0 {
				t.Fatalf("call %d begins while %d is open, after %d: %v", e.Index, open, len(r.calls), all)
			}
			open = e.Index
			r.calls = append(r.calls, oneCall{name: e.Name})
		case CallArguments, CallEnd:
			if e.Index != open {
				t.Fatalf("event of call %d while %d is open: %v", e.Index, open, all)
			}
			r.calls[open].arguments += e.Text
			if e.Kind == CallEnd {
				r.calls[open].ended, open = true, -1
			}
		case Problem:
			r.problems = append(r.problems, e.Text)
		}
		if open >= 0 && !slices.Contains([]Kind{CallStart, CallArguments, Problem}, e.Kind) {
			t.Fatalf("%v inside call %d: %v", e, open, all)
		}
	}
	if open >= 0 {
		t.Fatalf("call %d does not end: %v", open, all)
	}
	return r
}

func canonical(t testing.TB, text string) string {
	t.Helper()
	v := jsontext.Value(text)
	if err := v.Canonicalize(); err != nil {
		t.Fatalf("arguments %q: %v", text, err)
	}
	return string(v)
}
