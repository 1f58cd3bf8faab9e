package serve

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/grammar"
	"terrace/model"
)

// chained are samplers as clients ask for them, and as the engine has them.
var chained = []struct {
	fields string
	o      model.SamplerOptions
}{
	{`"typical_p": 0.6`, model.SamplerOptions{TypicalP: 0.6}},
	{`"typical": 0.3, "top_n_sigma": 1.5`, model.SamplerOptions{TypicalP: 0.3, TopNSigma: 1.5}},
	{`"xtc_probability": 0.5, "xtc_threshold": 0.01`, model.SamplerOptions{XTCProbability: 0.5, XTCThreshold: 0.01}},
	{`"dry_multiplier": 2.5`, model.SamplerOptions{DRY: model.DRY{Multiplier: 2.5, Base: 1.75, AllowedLength: 2, Last: -1}}},
	{`"dry_multiplier": 2, "dry_base": 3, "dry_allowed_length": 0, "dry_penalty_last_n": 20`, model.SamplerOptions{DRY: model.DRY{Multiplier: 2, Base: 3, AllowedLength: 0, Last: 20}}},
	{`"mirostat": 1, "mirostat_tau": 3, "mirostat_eta": 0.3`, model.SamplerOptions{Mirostat: 1, MirostatTau: 3, MirostatEta: 0.3}},
	{`"mirostat_mode": 2`, model.SamplerOptions{Mirostat: 2, MirostatTau: 5, MirostatEta: 0.1}},
}

// TestSamplersInABatch: texts under samplers with a state of their own, half of them under a grammar, are those that the engine makes of each alone.
func TestSamplersInABatch(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Batch: 5, Queue: 64})
	const words = `root ::= ("ab " | "ba " | "abba ")+`
	g, err := grammar.GBNF(words)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := grammar.NewMachine(g, grammar.NewVocabulary(b.tok.Pieces(nil)))
	if err != nil {
		t.Fatal(err)
	}
	breakers, err := NewBreakers(b.tok, model.DefaultBreakers)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := b.tok.Encode("go on: abba", true, true)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, c := range chained {
		for _, constrained := range []bool{false, true} {
			o := c.o
			o.Temperature, o.TopP, o.TopPSet, o.Seed = 1, 1, true, uint64(i)
			r := engine.Request{IDs: ids, MaxTokens: 40, Sampler: o, Breakers: breakers, IsEnd: b.tok.IsEOG, Text: b.tok.NewDetokenizer()}
			fields := c.fields
			if constrained {
				r.Constrain, fields = machine.Start(), fields+`, "grammar": `+quote(words)
			}
			res, err := b.alone.Generate(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			plain := b.want("full", "go on: abba", 40, model.SamplerOptions{Temperature: 1, TopP: 1, TopPSet: true, Seed: uint64(i)})
			if repeats := o.DRY.AllowedLength < 2; !constrained && repeats && res.Text == plain { // two tokens in a row seldom come again
				t.Errorf("%s: the text is that of no sampler", fields)
			}
			wg.Go(func() {
				status, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": "go on: abba", "max_tokens": 40, "seed": %d, %s}`, i, fields))
				if status != 200 {
					t.Errorf("%s: %d %s", fields, status, out)
				} else if text := textOf(t, out); text != res.Text {
					t.Errorf("%s: %q, want %q", fields, text, res.Text)
				}
			})
		}
	}
	wg.Wait()
}

// TestSamplerFields: every generating API takes samplers, and names the one that is wrong.
func TestSamplerFields(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	bodies := map[string]string{"/v1/chat/completions": `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, %s}`, "/v1/completions": `{"prompt": "a", "max_tokens": 4, %s}`,
		"/v1/responses": `{"input": "a", "max_output_tokens": 4, %s}`, "/v1/messages": `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, %s}`,
		"/completion": `{"prompt": "a", "n_predict": 4, %s}`, "/api/generate": `{"model": "small", "prompt": "a", "stream": false, "options": {"num_predict": 4, %s}}`}
	for path, body := range bodies {
		for _, c := range chained {
			if status, header, out := b.sendRaw(path, fmt.Sprintf(body, c.fields)); status != 200 || header.Get("Terrace-Ignored") != "" {
				t.Errorf("%s %s: %d %q %.200s", path, c.fields, status, header.Get("Terrace-Ignored"), out)
			}
		}
		for _, off := range []string{`"typical_p": 1, "top_n_sigma": -1, "xtc_probability": 0, "xtc_threshold": 0.1, "dry_multiplier": 0, "dry_base": 0, "dry_sequence_breakers": [], "mirostat": 0, "mirostat_tau": 5, "min_tokens": 0, "stop_token_ids": []`,
			`"dry_sequence_breakers": "\"\\n\", \":\"", "dry_multiplier": 1`, `"dry_sequence_breakers": ["é", "</s>"], "dry_multiplier": 1`} {
			if status, _, out := b.sendRaw(path, fmt.Sprintf(body, off)); status != 200 {
				t.Errorf("%s: %d %.200s", path, status, out)
			}
		}
		for _, bad := range []string{`"typical_p": 1.5`, `"typical_p": 0`, `"top_n_sigma": "x"`, `"xtc_probability": 2`, `"xtc_threshold": -1`, `"dry_multiplier": -1`, `"dry_base": 0.5, "dry_multiplier": 1`, `"dry_allowed_length": -1`,
			`"dry_penalty_last_n": -2`, `"dry_sequence_breakers": 3`, `"dry_sequence_breakers": [""]`, `"mirostat": 3`, `"mirostat_tau": -1`, `"mirostat_eta": -1`, `"min_tokens": 5`, `"min_tokens": -1`, `"stop_token_ids": [99999999]`, `"stop_token_ids": [-1]`} {
			name := strings.SplitN(bad, `"`, 3)[1]
			if status, _, out := b.sendRaw(path, fmt.Sprintf(body, bad)); status != 400 || !strings.Contains(out, name) {
				t.Errorf("%s %s: %d %.200s", path, bad, status, out)
			}
		}
		if _, header, out := b.sendRaw(path, fmt.Sprintf(body, `"mirostat": 2, "top_k": 3, "repeat_penalty": 1.1`)); header.Get("Terrace-Ignored") != "top_k, repeat_penalty" {
			t.Errorf("%s: %q is told of what Mirostat does not heed: %.200s", path, header.Get("Terrace-Ignored"), out)
		}
	}
}

// TestMinTokensAndStopIDs: a text has so many tokens at least, and ends at ids that a client names.
func TestMinTokensAndStopIDs(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	ask := func(fields string) (ids []int, text string, finish Finish) {
		t.Helper()
		_, out := b.post("/v1/completions", `{"prompt": "a b", "max_tokens": 30, "temperature": 0, "return_token_ids": true, `+fields+`}`)
		var c completion
		if err := json.Unmarshal([]byte(out), &c); err != nil || len(c.Choices) != 1 {
			t.Fatalf("%s: %v", out, err)
		}
		return c.Choices[0].TokenIDs, c.Choices[0].Text, *c.Choices[0].FinishReason
	}
	free, text, _ := ask(`"ignore_eos": true`)
	stop := free[5]
	at := 0
	for free[at] != stop {
		at++
	}
	if ids, _, finish := ask(fmt.Sprintf(`"ignore_eos": true, "stop_token_ids": [%d]`, stop)); len(ids) != at+1 || finish != FinishStop {
		t.Errorf("stopped by %d: %v %s, want %v", stop, ids, finish, free[:at+1])
	}
	if ids, _, _ := ask(fmt.Sprintf(`"min_tokens": 20, "stop_token_ids": [%d]`, stop)); len(ids) < 20 {
		t.Errorf("%d tokens, want 20", len(ids))
	}
	if _, got, _ := ask(fmt.Sprintf(`"ignore_eos": true, "min_tokens": 10, "stop": [%s]`, quote(text[1:2]))); !strings.HasPrefix(got, text[:4]) {
		t.Errorf("%q: a stop string ended it before its least, want %q first", got, text[:4])
	}
}
