package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/model"
)

// TestWideFields: 128 stops, biases of a whole vocabulary, and -1 where it means random or off elsewhere.
func TestWideFields(t *testing.T) {
	b := newBench(t, engine.Options{Context: 200}, Options{Queue: 4})
	ids, _ := b.tok.Encode("z", true, true)
	z := ids[len(ids)-1]
	var biases, stops []string
	for id := range b.tok.Size() {
		biases = append(biases, fmt.Sprintf(`"%d": %d`, id, map[bool]int{true: 100, false: -100}[id == z]))
	}
	for i := range 127 {
		stops = append(stops, fmt.Sprintf(`"q%d"`, i))
	}
	all := "{" + strings.Join(biases, ", ") + "}"
	complete := func(fields string) completion {
		t.Helper()
		var c completion
		status, out := b.post("/v1/completions", `{"prompt": "a b", `+fields+`}`)
		if status != 200 || json.Unmarshal([]byte(out), &c) != nil {
			t.Fatalf("%.60s: %d %.300s", fields, status, out)
		}
		return c
	}
	if c := complete(`"max_tokens": 3, "logit_bias": ` + all); c.Choices[0].Text != "zzz" {
		t.Errorf("%q", c.Choices[0].Text)
	}
	pairs := strings.NewReplacer("{", "[[", "}", "]]", ", ", "], [", `"`, "", ":", ",").Replace(all)
	if c := complete(`"max_tokens": 3, "logit_bias": ` + pairs); c.Choices[0].Text != "zzz" {
		t.Errorf("pairs: %q", c.Choices[0].Text)
	}
	if c := complete(`"max_tokens": 3, "temperature": 0, "logit_bias": [["y", 50], ["y", 50]]`); c.Choices[0].Text != "yyy" {
		t.Errorf("a text: %q", c.Choices[0].Text)
	}
	if c := complete(fmt.Sprintf(`"max_tokens": 3, "temperature": 0, "logit_bias": [["y", 100], [%d, 90], ["y", false]]`, z)); c.Choices[0].Text != "zzz" {
		t.Errorf("a token that never comes: %q", c.Choices[0].Text)
	}
	for _, bad := range []string{`[[1]]`, `[["", 1]]`, `[[1, true]]`, `[[null, 1]]`, `[[1, null]]`, `[[1, "x"]]`, `[[-1, 1]]`, `[[1, 101]]`, `[1, 2]`, `{"x": 1}`, `{"1": "x"}`, `"x"`, `[[1.5, 1]]`} {
		if status, out := b.post("/v1/completions", `{"prompt": "a", "max_tokens": 1, "logit_bias": `+bad+`}`); status != 400 || !strings.Contains(out, "logit_bias") {
			t.Errorf("%s: %d %s", bad, status, out)
		}
	}
	if c := complete(`"max_tokens": 9, "logit_bias": ` + all + `, "stop": [` + strings.Join(stops, ", ") + `, "zz"]`); c.Choices[0].Text != "" || *c.Choices[0].FinishReason != FinishStop {
		t.Errorf("%+v", c.Choices[0])
	}
	if status, out := b.post("/v1/completions", `{"prompt": "a", "stop": [`+strings.Join(stops, ", ")+`, "x", "y"]}`); status != 400 || !strings.Contains(out, "128") {
		t.Errorf("129 stops: %d %s", status, out)
	}
	random := []string{complete(`"max_tokens": 40, "seed": -1`).Choices[0].Text, complete(`"max_tokens": 40, "seed": -1`).Choices[0].Text}
	if random[0] == random[1] {
		t.Error("seed -1 is one seed")
	}
	if complete(`"max_tokens": 40, "seed": 3, "top_k": -1`).Choices[0].Text != complete(`"max_tokens": 40, "seed": 3, "top_k": 0`).Choices[0].Text {
		t.Error("top_k -1 is not off")
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		if status, out := b.post(path, `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "seed": -1, "top_k": -1, "repetition_penalty": 1.5}`); status != 200 {
			t.Errorf("%s: %d %s", path, status, out)
		}
		if status, out := b.post(path, `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "seed": -2}`); status != 400 || !strings.Contains(out, "seed") {
			t.Errorf("%s: %d %s", path, status, out)
		}
	}
}

// TestLogprobNames: tokens are listed under names of their own, from the prompt's end on.
func TestLogprobNames(t *testing.T) {
	b := newBench(t, engine.Options{Context: 200}, Options{Queue: 4})
	for prompt, at := range map[string]int{`"a bc"`: 4, `[40, 41, 42]`: len([]rune(b.tok.Decode([]int{40, 41, 42}, false)))} {
		_, out := b.post("/v1/completions", `{"prompt": `+prompt+`, "max_tokens": 12, "temperature": 0, "logprobs": 20, "return_token_ids": true, "ignore_eos": true}`)
		var c completion
		if err := json.Unmarshal([]byte(out), &c); err != nil || len(c.Choices) != 1 {
			t.Fatalf("%s: %v", out, err)
		}
		x := c.Choices[0]
		if x.Logprobs.TextOffset[0] != at {
			t.Errorf("prompt %s: the text begins at %d, want %d", prompt, x.Logprobs.TextOffset[0], at)
		}
		for k, id := range x.TokenIDs {
			if name, _ := b.tok.TokenView(id); name == "" || x.Logprobs.Tokens[k] != name || len(x.Logprobs.TopLogprobs[k]) < 20 {
				t.Errorf("token %d: %q among %d, want %q", id, x.Logprobs.Tokens[k], len(x.Logprobs.TopLogprobs[k]), name)
			}
		}
	}
}

// TestSampling: a request that does not say is sampled as the server was told, in every API; what it says counts.
func TestSampling(t *testing.T) {
	zero, three := 0.0, 3
	b := newBench(t, engine.Options{Context: 200}, Options{Sampling: model.SamplerSettings{Temperature: &zero, TopK: &three}})
	want := b.want("full", "one two", 8, model.SamplerOptions{})
	for _, c := range []struct{ path, body string }{
		{"/v1/completions", `{"prompt": "one two", "max_tokens": 8}`},
		{"/completion", `{"prompt": "one two", "n_predict": 8}`},
		{"/api/generate", `{"model": "small", "prompt": "one two", "raw": true, "stream": false, "options": {"num_predict": 8}}`},
	} {
		status, out := b.post(c.path, c.body)
		if status != 200 || !strings.Contains(out, jsonText(want)) {
			t.Errorf("%s: %d %s, want %q", c.path, status, out, want)
		}
	}
	hot := b.want("full", "one two", 8, model.SamplerOptions{Temperature: 1.5, TopK: 3, TopP: 1, TopPSet: true, Seed: 4})
	if _, out := b.post("/v1/completions", `{"prompt": "one two", "max_tokens": 8, "temperature": 1.5, "seed": 4}`); textOf(t, out) != hot || hot == want {
		t.Errorf("a temperature that is said: %s, want %q", out, hot)
	}
	if _, out := b.post("/v1/responses", `{"input": "one", "max_output_tokens": 1}`); !strings.Contains(out, `"temperature":0,`) {
		t.Errorf("the answer does not say how it was sampled: %s", out)
	}
}
