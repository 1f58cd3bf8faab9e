package serve

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"terrace/engine"
	"terrace/model"
	"terrace/tokenizer"
)

// thinkingTemplate opens a thought.
var thinkingTemplate = strings.Replace(testTemplate, "<assistant>", "<assistant><think>\n", 1) + "{#</think>#}"

func newThinkingBench(t *testing.T, o Options) *bench {
	return newBenchOf(t, func(v *tokenizer.Vocab) { v.ChatTemplate = thinkingTemplate }, func() engine.Options { return engine.Options{Context: 600} }, o, func(*engine.Engine) {})
}

// TestThoughtBudget: a thought of as many tokens as are allowed is closed by the form's mark, and the answer is what the model writes behind it; streamed
// and whole, in every API, alone and beside others.
func TestThoughtBudget(t *testing.T) {
	b := newThinkingBench(t, Options{Batch: 4, Queue: 100})
	const prompt = "<user>a\n<assistant><think>\n"
	ids := func(text string, special bool) []int {
		t.Helper()
		list, err := b.tok.Encode(text, false, special)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	// greedy is the likeliest tokens behind a prompt and some tokens that were written, n of both.
	greedy := func(written []int, n int) []int {
		t.Helper()
		s, err := b.alone.NewSession(b.alone.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), ids(prompt, true), engine.PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		all := slices.Clone(written)
		for i := range n {
			if i >= len(written) {
				id, err := s.Choose(model.NewSampler(model.SamplerOptions{}))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, id)
			}
			if err := s.Decode(all[i]); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	closing := ids("\n</think>\n\n", true)
	var wg sync.WaitGroup
	for n := range 6 {
		thought := greedy(nil, n)
		whole := greedy(slices.Concat(thought, closing), 30)
		wantThought, wantSaid := strings.TrimSpace(b.tok.DecodeText(thought, false)), strings.TrimSpace(b.tok.DecodeText(whole[n+len(closing):], false))
		const rest = `"temperature": 0, "ignore_eos": true, "return_token_ids": true`
		for _, c := range []struct{ path, body string }{
			{"/v1/chat/completions", fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 30, "reasoning": {"max_tokens": %d}, %s`, n, rest)},
			{"/v1/chat/completions", fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 30, "thinking": {"type": "enabled", "budget_tokens": %d}, "thinking_budget": 20, %s`, n, rest)},
			{"/v1/chat/completions", fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 30, "chat_template_kwargs": {"max_thinking_tokens": %d}, "reasoning_budget": -1, %s`, n, rest)},
			{"/v1/messages", fmt.Sprintf(`{"messages": [{"role": "user", "content": "a"}], "max_tokens": 30, "thinking": {"type": "enabled", "budget_tokens": %d}, %s`, n, rest)},
			{"/v1/responses", fmt.Sprintf(`{"input": "a", "max_output_tokens": 30, "thinking_budget_tokens": %d, %s`, n, rest)},
		} {
			for _, stream := range []bool{false, true} {
				wg.Go(func() {
					tail := "}"
					if stream && c.path == "/v1/messages" {
						tail = `, "stream": true}`
					} else if stream {
						tail = `, "stream": true, "stream_options": {"include_usage": true}}`
					}
					status, out := b.post(c.path, c.body+tail)
					got, said, _ := gather(t, out, stream)
					if status != 200 || strings.TrimSpace(got) != wantThought || strings.TrimSpace(said) != wantSaid {
						t.Errorf("%s %s: %d, thought %q, want %q; text %q, want %q", c.path, c.body, status, got, wantThought, said, wantSaid)
					}
					usage := []string{`"output_tokens":30`}
					switch {
					case strings.Contains(c.path, "chat"):
						usage = []string{`"completion_tokens":30`, fmt.Sprintf(`"reasoning_tokens":%d`, n)}[:1+min(n, 1)]
					case strings.Contains(c.path, "responses"):
						usage = append(usage, fmt.Sprintf(`"reasoning_tokens":%d`, n))
					}
					for _, want := range usage {
						if !strings.Contains(out, want) {
							t.Errorf("%s: no %s in %s", c.path, want, out)
						}
					}
				})
			}
		}
	}
	wg.Wait()
}

// TestThoughtBudgetEdges: efforts, words that end a thought, stops that do not end the mark, constraints that have no place for it, and what is wrong.
func TestThoughtBudgetEdges(t *testing.T) {
	b := newThinkingBench(t, Options{Queue: 4})
	chat := func(fields string) (thought, said string, out string) {
		t.Helper()
		_, out = b.post("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "temperature": 0, "ignore_eos": true, `+fields+`}`)
		thought, said, _ = gather(t, out, false)
		return thought, said, out
	}
	for fields, want := range map[string]int{`"max_tokens": 30, "reasoning_effort": "none"`: 0, `"max_tokens": 30, "thinking": {"type": "disabled"}`: 0, `"max_tokens": 30, "reasoning_effort": "low"`: 30, `"max_tokens": 30`: 30, `"max_tokens": 30, "thinking_budget": -1`: 30} {
		if _, said, out := chat(fields); (want == 0) != (said != "") || want > 0 && dig(t, out, "usage/completion_tokens_details/reasoning_tokens") != float64(want) {
			t.Errorf("%s: %q %s", fields, said, out)
		}
	}
	if thought, _, _ := chat(`"max_tokens": 90, "thinking_budget": 2, "reasoning_budget_message": " That is enough."`); !strings.HasSuffix(thought, " That is enough.") {
		t.Errorf("thought %q", thought)
	}
	if _, said, out := chat(`"max_tokens": 60, "thinking_budget": 0, "stop": ["\n\n", "think"]`); said == "" {
		t.Errorf("a stop string ended the closing mark: %s", out)
	}
	for _, text := range []string{"ab\n</think>\n\nc", "abcdef"} {
		_, out := b.post("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 60, "thinking_budget": 2, "grammar": `+emits(text)+`}`)
		thought, said, _ := gather(t, out, false)
		if want := strings.Split(text, "\n</think>\n\n"); strings.TrimSpace(thought) != want[0] || len(want) > 1 && said != want[1] {
			t.Errorf("under a grammar: thought %q, text %q, want %q", thought, said, want)
		}
	}
	for _, c := range []struct{ path, field string }{{"/v1/chat/completions", `"thinking_budget": -2`}, {"/v1/chat/completions", `"reasoning": {"max_tokens": -1}`}, {"/v1/chat/completions", `"chat_template_kwargs": {"thinking_budget": 1.5}`},
		{"/v1/messages", `"thinking": {"type": "enabled", "budget_tokens": -1}`}, {"/v1/messages", `"thinking_budget": "x"`}, {"/v1/messages", `"reasoning_budget_message": ` + quote(strings.Repeat("x", 5000))}} {
		status, out := b.post(c.path, `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, `+c.field+`}`)
		if name := strings.SplitN(c.field, `"`, 3)[1]; status != 400 || !strings.Contains(out, name) {
			t.Errorf("%s %.60s: %d %s", c.path, c.field, status, out)
		}
	}
}

// TestEffortShare: where the template does not know efforts, one is a share of the tokens that are wanted at most.
func TestEffortShare(t *testing.T) {
	b := newThinkingBench(t, Options{})
	for effort, want := range map[string]int{"minimal": 1024, "low": 2000, "medium": 5000, "high": 8000, "xhigh": 9500, "max": -1, "none": 0} {
		c := &conversation{tools: &toolUse{form: b.form}, fields: &templateFields{ReasoningEffort: &effort}, tail: "<think>\n"}
		if bound, err := (&budgetFields{}).bound(b.Server, c, nil, 10000); err != nil || bound.most != want {
			t.Errorf("%s: %+v %v, want %d", effort, bound, err, want)
		}
		n := 7
		if bound, err := (&budgetFields{ThinkingBudget: &n}).bound(b.Server, c, nil, 10000); err != nil || bound.most != 7 {
			t.Errorf("%s beside a budget of 7: %+v %v", effort, bound, err)
		}
	}
}
