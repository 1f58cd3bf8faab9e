package terrace_test

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"terrace"
	"terrace/model"
)

// whole is what an answer was, all its pieces together.
type whole struct {
	terrace.Piece
	pieces int
}

func taken(t *testing.T, answer iter.Seq2[terrace.Piece, error]) (w whole) {
	t.Helper()
	for p, err := range answer {
		if err != nil {
			t.Fatal(err)
		}
		w.Text, w.Thought, w.Problem = w.Text+p.Text, w.Thought+p.Thought, w.Problem+p.Problem
		w.Tokens, w.Calls, w.Logprobs = append(w.Tokens, p.Tokens...), append(w.Calls, p.Calls...), append(w.Logprobs, p.Logprobs...)
		if w.Use != nil || w.Finish != "" {
			t.Errorf("a piece behind the last one: %+v", p)
		}
		w.Finish, w.Use, w.pieces = p.Finish, p.Use, w.pieces+1
	}
	if w.Use == nil || w.Finish == "" || w.Use.Tokens != len(w.Tokens) {
		t.Errorf("the last piece: finish %q, use %+v, of %d tokens", w.Finish, w.Use, len(w.Tokens))
	}
	return w
}

func session(t *testing.T, m *terrace.Model, text string) *terrace.Session {
	t.Helper()
	s, err := m.NewSession("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Read(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	return s
}

// tokens is how many a session has read once what waits is read too.
func tokens(t *testing.T, s *terrace.Session) int {
	t.Helper()
	if err := s.Read(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	kv, err := s.KV()
	if err != nil {
		t.Fatal(err)
	}
	return kv.Tokens
}

// TestContextIsFull: an answer without a limit ends where the context does, of which the last token need not be read, of a model as of a session; a
// prompt that fills it leaves a model no room for an answer, and is said to be too long, as a text and as a chat.
func TestContextIsFull(t *testing.T) {
	const context = 128
	m := open(t, terrace.Options{Context: context, Template: "{{ messages[0].content }}"})
	for _, n := range []int{2, 50, context - 2} {
		prompt := strings.Repeat("x", n)
		of := taken(t, m.Generate(t.Context(), prompt, terrace.Settings{Seed: 3, IgnoreEnd: true}))
		s := session(t, m, prompt)
		read := tokens(t, s)
		again := taken(t, s.Generate(t.Context(), terrace.Settings{Seed: 3, IgnoreEnd: true}))
		if of.Finish != "length" || again.Finish != "length" || of.Use.PromptTokens != read || len(of.Tokens) != context-read || !slices.Equal(of.Tokens, again.Tokens) {
			t.Errorf("%d tokens of a prompt: %d %s of a model, %d %s of a session, in a context of %d", read, len(of.Tokens), of.Finish, len(again.Tokens), again.Finish, context)
		}
		if kv, err := s.KV(); err != nil || kv.Tokens != context-1 {
			t.Errorf("a session whose context is full has read %d tokens of %d, %v", kv.Tokens, context, err)
		}
		if err := s.Read(t.Context(), "x"); !errors.Is(err, terrace.ErrContext) {
			t.Errorf("more text in a full context: %v", err)
		}
	}
	for _, n := range []int{context, 5 * context} {
		prompt := strings.Repeat("x", n)
		for what, answer := range map[string]iter.Seq2[terrace.Piece, error]{
			"a text": m.Generate(t.Context(), prompt, terrace.Settings{MaxTokens: 1}),
			"a chat": m.Chat(t.Context(), []terrace.Message{{Role: "user", Content: prompt}}, terrace.Settings{MaxTokens: 1}),
		} {
			if _, err := terrace.Text(answer); !errors.Is(err, terrace.ErrContext) || errors.Is(err, terrace.ErrOption) {
				t.Errorf("%s of %d tokens: %v", what, n, err)
			}
		}
	}
}

// TestAnswersAreReadOnce: the last token of an answer waits, and is read with the next text, once.
func TestAnswersAreReadOnce(t *testing.T) {
	m := open(t, terrace.Options{})
	s := session(t, m, "the tide takes ")
	want := tokens(t, s)
	for range 2 {
		of := taken(t, s.Generate(t.Context(), terrace.Settings{MaxTokens: 5, Seed: 1, IgnoreEnd: true}))
		want += len(of.Tokens)
		for range 2 {
			if err := s.Read(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			want++
		}
		if got := tokens(t, s); got != want {
			t.Errorf("%d tokens were read, want %d", got, want)
		}
	}
}

// TestStopsInSessions: the token in which a stop string ends is no part of the session's text, nor is an end token; every other is.
func TestStopsInSessions(t *testing.T) {
	m := open(t, terrace.Options{})
	const prompt = "the tide takes "
	plain := terrace.Settings{MaxTokens: 16, Seed: 11, IgnoreEnd: true}
	text := taken(t, session(t, m, prompt).Generate(t.Context(), plain))
	at := 5
	for ; at < len(text.Text) && (text.Text[at] >= 0x80 || strings.IndexByte(text.Text, text.Text[at]) != at); at++ { // one byte is one token
	}
	for what, c := range map[string]struct {
		set    func(*terrace.Settings)
		finish string
	}{
		"stop string": {func(s *terrace.Settings) { s.Stop = []string{text.Text[at : at+1]} }, "stop"},
		"stop token":  {func(s *terrace.Settings) { s.StopTokens = text.Tokens[7:8] }, "stop"},
		"length":      {func(s *terrace.Settings) { s.MaxTokens = 9 }, "length"},
		"format":      {func(s *terrace.Settings) { s.Format = terrace.OneOf("yes") }, "stop"},
	} {
		set, s := plain, session(t, m, prompt)
		c.set(&set)
		read := tokens(t, s)
		got := taken(t, s.Generate(t.Context(), set))
		want := read + len(got.Tokens)
		if strings.HasPrefix(what, "stop") {
			want--
		}
		if n := tokens(t, s); got.Finish != c.finish || n != want || len(got.Tokens) < 2 {
			t.Errorf("%s: %q of %d tokens, %s: the session has %d behind %d", what, got.Text, len(got.Tokens), got.Finish, n, read)
		}
		if got.Use.KVBytes <= 0 {
			t.Errorf("%s: %+v", what, got.Use)
		}
	}
}

// TestCallsEnd: an answer that ends with a call says so; one that is cut in a call, or calls nothing, does not, and what is wrong with the
// call is told.
func TestCallsEnd(t *testing.T) {
	m := open(t, terrace.Options{Template: template, Context: 512})
	user := []terrace.Message{{Role: "user", Content: "x"}}
	set := terrace.Settings{Tools: []terrace.Tool{{Name: "f", Parameters: `{"type": "object", "properties": {"a": {"const": "a long argument"}}, "required": ["a"], "additionalProperties": false}`}}, Choice: "f"}
	all := taken(t, m.Chat(t.Context(), user, set))
	if all.Finish != "tool_calls" || all.Problem != "" || len(all.Calls) != 1 || all.Calls[0].Name != "f" || all.Calls[0].Arguments != `{"a": "a long argument"}` || all.Calls[0].ID == "" {
		t.Errorf("a call: %+v", all.Piece)
	}
	set.MaxTokens = len(all.Tokens) - 8
	cut := taken(t, m.Chat(t.Context(), user, set))
	if cut.Finish != "length" || cut.Problem == "" || len(cut.Calls) != 1 || !strings.HasPrefix(`{"a": "a long argument"}`, cut.Calls[0].Arguments) {
		t.Errorf("a call that is cut: %+v", cut.Piece)
	}
	set.Choice, set.MaxTokens = "none", 6
	if none := taken(t, m.Chat(t.Context(), user, set)); none.Finish == "tool_calls" || none.Calls != nil {
		t.Errorf("no call: %+v", none.Piece)
	}
}

// TestDRYBreakers: a repetition is counted from the last line break on, of a model as of a session.
func TestDRYBreakers(t *testing.T) {
	m := open(t, terrace.Options{})
	set := terrace.Settings{MaxTokens: 1, IgnoreEnd: true, Sampler: &model.SamplerOptions{DRY: model.DRY{Multiplier: 1, Base: 10, AllowedLength: 3, Last: -1}}}
	first := func(answer iter.Seq2[terrace.Piece, error]) int { return taken(t, answer).Tokens[0] }
	is := first(m.Generate(t.Context(), "q", terrace.Settings{MaxTokens: 1, IgnoreEnd: true, Format: terrace.OneOf("x")}))
	set.Bias = map[int]float32{is: 500} // a repetition of seven tokens takes 10,000 off
	for prompt, goes := range map[string]bool{"qwxv\nqwxv\nqw": true, "qwxvkqwxvkqw": false} {
		for what, answer := range map[string]iter.Seq2[terrace.Piece, error]{"a model": m.Generate(t.Context(), prompt, set), "a session": session(t, m, prompt).Generate(t.Context(), set)} {
			if id := first(answer); (id == is) != goes {
				t.Errorf("%q goes on with token %d of %s, the letter that was repeated is %d", prompt, id, what, is)
			}
		}
	}
}
