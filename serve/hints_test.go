package serve

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"terrace/engine"
)

// sendRaw is an answer with its headers.
func (b *bench) sendRaw(path, body string) (int, http.Header, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.http.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out strings.Builder
	if _, err := io.Copy(&out, resp.Body); err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, withoutComments(out.String())
}

const (
	taken   = "taken"   // and nothing is said
	told    = "told"    // taken, and named as left out
	refuses = "refused" // 400 that names the field
)

// TestHints: fields of other servers, by API: those that cannot change the answer are taken, the rest is refused by name.
func TestHints(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	bodies := map[string]string{"/v1/chat/completions": `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "temperature": 0, %}`, "/v1/completions": `{"prompt": "a", "max_tokens": 2, "temperature": 0, %}`,
		"/v1/responses": `{"input": "a", "max_output_tokens": 2, "temperature": 0, %}`, "/v1/messages": `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "temperature": 0, %}`}
	function := `{"type": "function", "function": {"name": "f"}}`
	for _, c := range []struct{ path, field, value, want string }{
		{"/v1/chat/completions", "verbosity", `"low"`, told}, {"/v1/chat/completions", "verbosity", `null`, taken}, {"/v1/chat/completions", "verbosity", `3`, refuses},
		{"/v1/chat/completions", "modalities", `["text"]`, taken}, {"/v1/chat/completions", "modalities", `["text", "audio"]`, refuses}, {"/v1/chat/completions", "prediction", `{"type": "content", "content": "a"}`, told},
		{"/v1/chat/completions", "store", `false`, taken}, {"/v1/chat/completions", "store", `true`, told}, {"/v1/chat/completions", "mirostat", `0`, taken}, {"/v1/chat/completions", "mirostat", `3`, refuses},
		{"/v1/chat/completions", "tfs_z", `1.00`, taken}, {"/v1/chat/completions", "tfs_z", `0.9`, refuses}, {"/v1/chat/completions", "chat_template", `"{{ 1 }}"`, refuses}, {"/v1/chat/completions", "litellm_call_id", `"1"`, told},
		{"/v1/chat/completions", "speculative.n_max", `4`, told}, {"/v1/chat/completions", "no_such_field", `1`, refuses}, {"/v1/chat/completions", "no_such_field", `null`, refuses}, {"/v1/chat/completions", "skip_special_tokens", `false`, refuses},
		{"/v1/chat/completions", "reasoning", `{"effort": "low"}`, taken}, {"/v1/chat/completions", "reasoning", `{"exclude": true}`, refuses}, {"/v1/chat/completions", "thinking", `{"type": "disabled"}`, taken},
		{"/v1/chat/completions", "tools", `[` + function + `, {"type": "web_search", "depth": 1}]`, "web_search"}, {"/v1/chat/completions", "tools", `[{"type": "web_search"}]`, refuses}, {"/v1/chat/completions", "max_completion_tokens", `2`, taken},
		{"/v1/completions", "user", `"u"`, told}, {"/v1/completions", "add_special_tokens", `true`, taken}, {"/v1/completions", "add_special_tokens", `false`, refuses}, {"/v1/completions", "modalities", `["text"]`, refuses},
		{"/v1/responses", "client_metadata", `{"a": 1}`, told}, {"/v1/responses", "truncation", `"auto"`, taken}, {"/v1/responses", "max_tool_calls", `3`, told}, {"/v1/responses", "background", `true`, refuses}, {"/v1/responses", "include", `["reasoning.encrypted_content"]`, taken},
		{"/v1/responses", "tools", `[{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}, {"type": "namespace", "name": "n", "tools": []}]`, "custom, namespace"}, {"/v1/responses", "tool_choice", `{"type": "web_search"}`, refuses},
		{"/v1/messages", "context_management", `{"edits": []}`, told}, {"/v1/messages", "mcp_servers", `[]`, taken}, {"/v1/messages", "mcp_servers", `[{"type": "url"}]`, refuses}, {"/v1/messages", "container", `"c"`, refuses},
		{"/v1/messages", "output_config", `{"effort": "high"}`, taken}, {"/v1/messages", "output_config", `{"effort": "hot"}`, refuses}, {"/v1/messages", "betas", `["x"]`, told}, {"/v1/messages", "verbosity_", `1`, refuses},
		{"/v1/messages", "tools", `[{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}]`, "web_search_20250305"}, {"/v1/messages", "tools", `[{"type": "web_search_20250305", "name": "web_search"}]`, refuses},
	} {
		status, header, out := b.sendRaw(c.path, strings.Replace(bodies[c.path], "%", quote(c.field)+": "+c.value, 1))
		said := header.Get("Terrace-Ignored")
		switch c.want {
		case taken:
			if status != 200 || said != "" {
				t.Errorf("%s %s %s: %d %q %.200s", c.path, c.field, c.value, status, said, out)
			}
		case refuses:
			name := strings.ReplaceAll(c.field, "output_config", "effort")
			if status != 400 || !strings.Contains(out, name) || strings.HasPrefix(c.path, "/v1/messages") != strings.HasPrefix(out, `{"type":"error"`) {
				t.Errorf("%s %s %s: %d %.200s", c.path, c.field, c.value, status, out)
			}
		default:
			if want := strings.Replace(c.want, told, c.field, 1); status != 200 || said != want {
				t.Errorf("%s %s %s: %d %q, want %q %.200s", c.path, c.field, c.value, status, said, want, out)
			}
		}
	}
}

// TestOneConstraint: each of the names of a constraint is kept to, and two are refused.
func TestOneConstraint(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	schema := `{"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": false}`
	for fields, want := range map[string]string{`"guided_regex": "[7]{3}"`: "777", `"guided_choice": ["seven"]`: "seven", `"structured_outputs": {"regex": "ab"}`: "ab", `"structured_outputs": {"choice": ["xyz"]}`: "xyz",
		`"guided_grammar": "root ::= \"q\""`: "q", `"json_schema": {"const": "r"}`: `"r"`, `"guided_json": "{\"const\": \"s\"}"`: `"s"`, `"structured_outputs": {"json": ` + schema + `}`: `{"n":7}`} {
		status, _, out := b.sendRaw("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 60, "temperature": 0, "logit_bias": {}, `+fields+`}`)
		if got := strings.NewReplacer(" ", "", `\n`, "", `\t`, "", `\`, "").Replace(out); status != 200 || !strings.Contains(got, `"content":"`+want+`"`) {
			t.Errorf("%s: %d %.300s", fields, status, out)
		}
	}
	if status, _, out := b.sendRaw("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "guided_regex": "a", "guided_choice": ["a"]}`); status != 400 || !strings.Contains(out, "guided_choice: not beside guided_regex") {
		t.Errorf("%d %s", status, out)
	}
}

// TestPrefill: an answer that has begun goes on, by each API's way to say so.
func TestPrefill(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	ids, err := b.tok.Encode("<user>a\n<assistant>It is", false, true)
	if err != nil {
		t.Fatal(err)
	}
	_, _, want := b.sendRaw("/v1/completions", `{"prompt": `+strings.ReplaceAll(fmt.Sprint(ids), " ", ", ")+`, "max_tokens": 12, "temperature": 0, "ignore_eos": true}`)
	text := between(want, `"text":"`, `","logprobs"`)
	for path, body := range map[string]string{"/v1/messages": `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "It is"}]`,
		"/v1/chat/completions":  `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "It is", "prefix": true}]`,
		"/v1/chat/completions/": `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "It is"}], "continue_final_message": true`} {
		if _, _, out := b.sendRaw(path, body+`, "max_tokens": 12, "temperature": 0, "ignore_eos": true}`); text == "" || !strings.Contains(out, text) {
			t.Errorf("%s: %s, want %q", path, out, text)
		}
	}
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

// TestPatterns: * stands for any text, also none.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{{"*", "openai/x", true}, {"*", "", true}, {"claude-*", "claude-3", true}, {"claude-*", "a-claude-3", false}, {"a*b*c", "abc", true}, {"a*b*c", "acb", false}, {"*b", "ab", true}, {"a*a", "a", false}, {"a", "ab", false}} {
		if matches(c.pattern, c.name) != c.want {
			t.Errorf("%q of %q: %v", c.pattern, c.name, !c.want)
		}
	}
}

// TestRepeatLast: how far repeat_penalty looks back changes the text, 64 being what is done anyway.
func TestRepeatLast(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	text := func(fields string) string {
		t.Helper()
		status, _, out := b.sendRaw("/v1/completions", `{"prompt": "a b", "max_tokens": 60, "temperature": 0, "ignore_eos": true`+fields+`}`)
		if status != 200 {
			t.Fatalf("%s: %d %s", fields, status, out)
		}
		return between(out, `"text":"`, `","logprobs"`)
	}
	plain, whole := text(""), text(`, "repeat_penalty": 3`)
	if plain == whole || text(`, "repeat_penalty": 3, "repeat_last_n": 64`) != whole || text(`, "repeat_penalty": 3, "repeat_last_n": 0`) != plain || text(`, "repeat_penalty": 3, "repeat_last_n": 2`) == whole {
		t.Errorf("%q, %q", plain, whole)
	}
}

// TestLastChunk: the finish reason comes alone.
func TestLastChunk(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	_, _, out := b.sendRaw("/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 12, "temperature": 0, "ignore_eos": true, "stream": true}`)
	if strings.Count(out, `"finish_reason":"length"`) != 1 || !strings.Contains(out, `"delta":{},"logprobs":null,"finish_reason":"length"`) {
		t.Error(out)
	}
}
