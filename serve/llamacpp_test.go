package serve

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
)

// TestLlamaCompletion: the text is that of /v1/completions, whole and streamed, and the end says why.
func TestLlamaCompletion(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	_, _, out := b.sendRaw("/v1/completions", `{"prompt": "a b", "max_tokens": 12, "temperature": 0, "ignore_eos": true}`)
	var want completion
	if err := json.Unmarshal([]byte(out), &want); err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"false", "true"} {
		status, header, out := b.sendRaw("/completion", `{"prompt": "a b", "n_predict": 12, "temperature": 0, "ignore_eos": true, "cache_prompt": true, "return_tokens": true, "stream": `+stream+`}`)
		if status != 200 || header.Get("Terrace-Ignored") != "cache_prompt" {
			t.Fatalf("%d %v %s", status, header, out)
		}
		text, tokens, last := "", 0, llamaReply{}
		for _, l := range strings.Split(strings.TrimSpace(out), "\n\n") {
			last = llamaReply{}
			if err := json.Unmarshal([]byte(strings.TrimPrefix(l, "data: ")), &last); err != nil {
				t.Fatalf("%v: %s", err, l)
			}
			text, tokens = text+last.Content, tokens+len(last.Tokens)
		}
		if text != want.Choices[0].Text || !last.Stop || last.StopType != "limit" || last.Predicted != 12 || last.Evaluated != want.Usage.PromptTokens || stream == "false" && tokens != 12 {
			t.Errorf("stream %s: %q, want %q; %d tokens, %+v", stream, text, want.Choices[0].Text, tokens, last)
		}
	}
	for path, c := range map[string]struct {
		body   string
		status int
		has    string
	}{
		"/completion": {`{"prompt": ["a", "b"], "n_predict": 2}`, 400, "prompt"}, "/completion/": {`{"prompt": "a", "n_predict": 2, "echo": true}`, 400, "echo"},
		"/infill": {`{"input_prefix": "a", "input_suffix": "b"}`, 501, "infill"}, "/v1/rerank": {`{"query": "q", "documents": ["a"]}`, 501, "rerank"}, "/rerank": {`{}`, 501, "rerank"},
	} {
		if status, _, out := b.sendRaw(path, c.body); status != c.status || !strings.Contains(out, c.has) {
			t.Errorf("%s: %d %s", path, status, out)
		}
	}
}

// TestLlamaProbabilities: n_probs lists each token with the likeliest in its place, as /v1/completions does, whole and streamed; 0 lists none.
func TestLlamaProbabilities(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	_, _, out := b.sendRaw("/v1/completions", `{"prompt": "a b", "max_tokens": 12, "temperature": 0, "ignore_eos": true, "logprobs": 3, "return_token_ids": true}`)
	var want completion
	if err := json.Unmarshal([]byte(out), &want); err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"false", "true"} {
		_, _, out := b.sendRaw("/completion", `{"prompt": "a b", "n_predict": 12, "temperature": 0, "ignore_eos": true, "n_probs": 3, "stream": `+stream+`}`)
		var got []tokenProbability
		for _, l := range strings.Split(strings.TrimSpace(out), "\n\n") {
			part := llamaReply{}
			if err := json.Unmarshal([]byte(strings.TrimPrefix(l, "data: ")), &part); err != nil {
				t.Fatalf("%v: %s", err, l)
			}
			got = append(got, part.Probabilities...)
		}
		ids, logprobs := want.Choices[0].TokenIDs, want.Choices[0].Logprobs.TokenLogprobs
		if len(got) != 12 || len(ids) != 12 {
			t.Fatalf("stream %s: %d tokens of %d: %s", stream, len(got), len(ids), out)
		}
		for i, x := range got {
			if x.ID != ids[i] || x.Logprob != *logprobs[i] || len(x.Top) != 3 || x.Top[0].ID != x.ID || x.Top[0].Logprob != x.Logprob || x.Top[1].Logprob > x.Logprob {
				t.Errorf("stream %s, token %d: %+v, want %d of %g", stream, i, x, ids[i], *logprobs[i])
			}
		}
	}
	if _, _, out := b.sendRaw("/completion", `{"prompt": "a b", "n_predict": 2, "n_probs": 0}`); strings.Contains(out, "probabilities") {
		t.Error(out)
	}
}
