package answer

import (
	"runtime"
	"strings"
	"testing"
)

// TestDroppedParser: a parser whose answer is given up leaves no coroutine behind.
func TestDroppedParser(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 50 {
		FormOf("<tool_call>").Parser(testTools, "").Push("<tool_call>{")
	}
	for runtime.NumGoroutine() > before {
		runtime.GC()
	}
}

// TestAfterEnd: nothing follows the end of an answer.
func TestAfterEnd(t *testing.T) {
	p := FormOf("<tool_call>").Parser(testTools, "")
	if got := p.Push("a <tool"); len(got) != 1 || got[0].Text != "a" {
		t.Errorf("first piece: %v", got)
	}
	if got := p.End(); len(got) != 1 || got[0].Text != " <tool" {
		t.Errorf("end: %v", got)
	}
	if got := append(p.Push("b"), p.End()...); got != nil {
		t.Errorf("behind the end: %v", got)
	}
}

// TestCloseThought: a thought is ended by a text that the form ends it with, and only inside one.
func TestCloseThought(t *testing.T) {
	for _, f := range allForms() {
		p := f.Parser(nil, f.Thoughts[0].Open)
		var all []Event
		all = append(all, p.Push("So on and on")...)
		ends := p.CloseThought()
		if ends == "" || ends != f.CloseThought() || !f.InsideThought(f.Thoughts[0].Open) {
			t.Errorf("%s: a thought is ended by %q, want %q", f.Name, ends, f.CloseThought())
		}
		all = append(all, p.Push(ends+"Yes.")...)
		if p.CloseThought() != "" {
			t.Errorf("%s: still inside the thought", f.Name)
		}
		if got := read(t, append(all, p.End()...)); strings.TrimSpace(got.thought) != "So on and on" || got.text != "Yes." {
			t.Errorf("%s: %s", f.Name, got)
		}
	}
}

// TestKeeps: control tokens that marks are made of are kept.
func TestKeeps(t *testing.T) {
	f := FormOf("'<|open|>' <|sep|>")
	for token, want := range map[string]bool{"<|open|>": true, "<|sep|>": true, "<|close|>": true, "<|end_of_msg|>": false, "": false} {
		if f.Keeps(token) != want {
			t.Errorf("token %q: %v", token, !want)
		}
	}
}

// BenchmarkPush reads an answer of 1,000 tokens and a call.
func BenchmarkPush(b *testing.B) {
	f := FormOf("<tool_call>")
	b.ReportAllocs()
	for b.Loop() {
		p := f.Parser(testTools, "")
		for range 1000 {
			p.Push(" token")
		}
		p.Push("<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>")
		p.End()
	}
}
