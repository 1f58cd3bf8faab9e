package serve

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
)

// TestOllama: the text is that of OpenAI's API, whole and by lines; what cannot be done is refused in Ollama's shape.
func TestOllama(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4, Patterns: []string{"llama*"}})
	_, _, same := b.sendRaw("/v1/chat/completions", `{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}], "max_tokens": 12, "temperature": 0}`)
	var want chatCompletion
	if err := json.Unmarshal([]byte(same), &want); err != nil {
		t.Fatal(err)
	}
	text := *want.Choices[0].Message.Content
	for path, body := range map[string]string{"/api/chat": `{"model": "llama3:latest", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]`, "/api/generate": `{"model": "small:latest", "system": "s", "prompt": "a"`} {
		for _, how := range []string{`, "stream": false`, ``} {
			status, header, out := b.sendRaw(path, body+how+`, "keep_alive": "5m", "options": {"num_predict": 12, "temperature": 0, "num_ctx": 64, "mirostat": 0}}`)
			if status != 200 || header.Get("Terrace-Ignored") != "keep_alive, num_ctx" || (how == "") != strings.HasPrefix(header.Get("Content-Type"), "application/x-ndjson") {
				t.Fatalf("%s: %d %v %s", path, status, header, out)
			}
			got, lines := "", strings.Split(strings.TrimSpace(out), "\n")
			var last ollamaReply
			for i, l := range lines {
				last = ollamaReply{}
				if err := json.Unmarshal([]byte(l), &last); err != nil || last.Done != (i == len(lines)-1) {
					t.Fatalf("%s: line %d: %v: %s", path, i, err, l)
				}
				if last.Message != nil {
					got += last.Message.Content
				} else {
					got += *last.Response
				}
			}
			if got != text || last.OllamaCounts == nil || last.Eval != want.Usage.CompletionTokens || last.Prompt != want.Usage.PromptTokens || last.Reason != string(*want.Choices[0].FinishReason) {
				t.Errorf("%s%s: %q, want %q; %s", path, how, got, text, lines[len(lines)-1])
			}
		}
	}
	for _, c := range []struct {
		path, body string
		status     int
		has        string
	}{
		{"/api/chat", `{"model": "small"}`, 200, `"done_reason":"load"`},
		{"/api/chat", `{"model": "none", "messages": []}`, 404, `{"error":"model: there is no model`},
		{"/api/chat", `{"model": "small", "messages": [{"role": "user", "content": "a", "images": ["aa"]}]}`, 400, `{"error":"messages: message 0: images`},
		{"/api/chat", `{"model": "small", "messages": [{"role": "user", "content": "a"}], "options": {"mirostat": 3}}`, 400, `mirostat`},
		{"/api/chat", `{"model": "small", "messages": [{"role": "user", "content": "a"}], "options": {"no_such": 2}}`, 400, `no_such`},
		{"/api/chat", `{"model": "small", "messages": [{"role": "user", "content": "a"}], "no_such": 2}`, 400, `no_such`},
		{"/api/chat", `{"model": "small", "stream": false, "format": {"const": "q"}, "messages": [{"role": "user", "content": "a"}]}`, 200, `"content":"\"q\""`},
		{"/api/chat", `{"model": "small", "stream": false, "think": "warm", "messages": [{"role": "user", "content": "a"}]}`, 400, `warm`},
		{"/api/chat", `{"model": "small", "stream": false, "options": {"num_predict": 2}, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "tool_name": "f", "content": "1"}], "think": false}`, 200, `"done":true`},
		{"/api/generate", `{"model": "small", "prompt": "a", "raw": true, "stream": false, "options": {"num_predict": 2}}`, 200, `"response":`},
		{"/api/generate", `{"model": "small", "prompt": "a", "suffix": "b"}`, 400, `suffix`},
		{"/api/show", `{"model": "small"}`, 200, `"general.architecture":"llama"`},
		{"/api/show", `{"model": "none"}`, 404, `model`},
		{"/api/embed", `{"model": "small", "input": "a"}`, 404, `encoder`},
		{"/api/pull", `{"model": "x"}`, 501, `{"error":"pull: `},
	} {
		if status, _, out := b.sendRaw(c.path, c.body); status != c.status || !strings.Contains(out, c.has) {
			t.Errorf("%s %s: %d %.300s, want %d and %s", c.path, c.body, status, out, c.status, c.has)
		}
	}
	for path, has := range map[string]string{"/api/tags": `"family":"llama"`, "/api/ps": `"context_length":400`, "/api/version": `"version":"`, "/version": `"version":"`, "/v1/models": `"display_name":"small"`, "/props": `"modalities":{"vision":false`} {
		resp, err := http.Get(b.http.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		out := string(body)
		if resp.StatusCode != 200 || !strings.Contains(out, has) {
			t.Errorf("%s: %d %.300s", path, resp.StatusCode, out)
		}
	}
}
