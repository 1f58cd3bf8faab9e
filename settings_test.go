package terrace_test

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"terrace"
	"terrace/model"
)

// TestSettingsAct: each setting changes the text, and does the same in a session as in a model.
func TestSettingsAct(t *testing.T) {
	m := open(t, terrace.Options{})
	const prompt = "the water: \"the water\" the wa"
	both := func(what string, s terrace.Settings) (text, finish string, tokens []int) {
		t.Helper()
		var said [2]string
		var ends [2]string
		var ids [2][]int
		session, err := m.NewSession("")
		if err == nil {
			err = session.Read(t.Context(), prompt)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		for i, answer := range []iter.Seq2[terrace.Piece, error]{m.Generate(t.Context(), prompt, s), session.Generate(t.Context(), s)} {
			for p, err := range answer {
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				said[i], ends[i], ids[i] = said[i]+p.Text, p.Finish, append(ids[i], p.Tokens...)
			}
		}
		if said[0] != said[1] || ends[0] != ends[1] || !slices.Equal(ids[0], ids[1]) {
			t.Errorf("%s: %q %s %v of a model, %q %s %v of a session", what, said[0], ends[0], ids[0], said[1], ends[1], ids[1])
		}
		return said[0], ends[0], ids[0]
	}
	plain := terrace.Settings{MaxTokens: 24, Seed: 5, IgnoreEnd: true}
	text, finish, ids := both("plain", plain)
	if finish != "length" || len(ids) != 24 {
		t.Fatalf("%q %s %v", text, finish, ids)
	}
	said := map[string]string{text: "plain"}
	dry := model.SamplerOptions{DRY: model.DRY{Multiplier: 9, Base: 2, AllowedLength: 1, Last: -1}}
	for what, set := range map[string]func(s *terrace.Settings){
		"temperature": func(s *terrace.Settings) { s.Temperature = 0.4 }, "top-k": func(s *terrace.Settings) { s.TopK = 4 }, "top-p": func(s *terrace.Settings) { s.TopP = 0.5 }, "min-p": func(s *terrace.Settings) { s.MinP = 0.4 },
		"repeat penalty": func(s *terrace.Settings) { s.RepeatPenalty = 4 }, "seed": func(s *terrace.Settings) { s.Seed = 6 }, "greedy": func(s *terrace.Settings) { s.Greedy = true }, "dry": func(s *terrace.Settings) { s.Sampler = &dry },
		"bias": func(s *terrace.Settings) { s.Bias = map[int]float32{ids[3]: 4} },
	} {
		s := plain
		set(&s)
		got, _, _ := both(what, s)
		if other, ok := said[got]; ok {
			t.Errorf("%s: the text of %s, %q", what, other, got)
		}
		said[got] = what
	}
	if got, finish, some := both("stop", terrace.Settings{MaxTokens: 24, Seed: 5, IgnoreEnd: true, Stop: []string{text[4:7]}}); finish != "stop" || got != text[:strings.Index(text, text[4:7])] || len(some) >= 24 {
		t.Errorf("stop: %q %s %v of %q", got, finish, some, text)
	}
	at := slices.Index(ids, ids[6])
	if got, finish, some := both("stop tokens", terrace.Settings{MaxTokens: 24, Seed: 5, IgnoreEnd: true, StopTokens: ids[6:7]}); finish != "stop" || len(some) != at+1 || !strings.HasPrefix(text, got) {
		t.Errorf("stop tokens: %q %s %v of %v", got, finish, some, ids)
	}
	ends := 0
	for id := range 300 { // one of them is the model's end
		s := terrace.Settings{MaxTokens: 3, Bias: map[int]float32{id: 1000}}
		if _, finish, some := both("end", s); finish == "stop" {
			ends++
			s.IgnoreEnd = true
			if _, finish, all := both("no end", s); finish != "length" || len(all) != 3 || len(some) != 1 {
				t.Errorf("end: %v, and %v %s where it does not count", some, all, finish)
			}
		}
	}
	if ends == 0 {
		t.Error("no token is an end")
	}
}
