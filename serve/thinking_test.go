package serve

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/grammar"
	"terrace/serve/answer"
)

// emits is a grammar of one text.
func emits(text string) string {
	return quote("root ::= " + quote(text))
}

// TestThoughtsAndCalls: a thought, text and calls in the model's form come out apart, in three APIs, whole and streamed.
func TestThoughtsAndCalls(t *testing.T) {
	b := newBench(t, engine.Options{Context: 1024}, Options{})
	text := "<think>\nhm {1}\n</think>\nLook.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"
	function := `"name":"f","description":"d","parameters":{"type":"object","properties":{"x":{"type":"integer"}}}`
	schema := `"name":"f","input_schema":{"type":"object","properties":{"x":{"type":"integer"}}}`
	chat := `{"messages":[{"role":"user","content":"a"}],"max_tokens":400,"grammar":` + emits(text) + `,"tools":[{"type":"function","function":{` + function + `}}]`
	messages := `{"messages":[{"role":"user","content":"a"}],"max_tokens":400,"thinking":{"type":"enabled","budget_tokens":1024},"grammar":` + emits(text) + `,"tools":[{` + schema + `}]`
	responses := `{"input":[{"role":"user","content":"a"}],"max_output_tokens":400,"reasoning":{"effort":"low","summary":"auto"},"grammar":` + emits(text) + `,"tools":[{"type":"function",` + function + `}]`
	for name, c := range map[string]struct{ path, body string }{
		"chat": {"/v1/chat/completions", chat}, "messages": {"/v1/messages", messages}, "responses": {"/v1/responses", responses},
	} {
		for _, stream := range []bool{false, true} {
			status, answer := b.post(c.path, c.body+map[bool]string{true: `,"stream":true}`, false: "}"}[stream])
			thought, said, arguments := gather(t, answer, stream)
			if status != 200 || strings.TrimSpace(thought) != "hm {1}" || strings.TrimSpace(said) != "Look." || strings.ReplaceAll(arguments, " ", "") != `f{"x":1}` {
				t.Errorf("%s, stream %v: %d, thought %q, text %q, call %q\n%s", name, stream, status, thought, said, arguments, answer)
			}
			for _, want := range map[string][]string{"chat": {`"finish_reason":"tool_calls"`}, "messages": {`"stop_reason":"tool_use"`, `"signature":"terrace"`}, "responses": {`"type":"reasoning"`, `"status":"completed"`}}[name] {
				if !strings.Contains(answer, want) {
					t.Errorf("%s, stream %v: no %s in %s", name, stream, want, answer)
				}
			}
		}
	}
	b = newBench(t, engine.Options{Context: 1024}, Options{Reasoning: ReasoningNone})
	_, answer := b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":99,"grammar":`+emits("<think>x</think>y")+`}`)
	if dig(t, answer, "choices/0/message/content") != "<think>x</think>y" {
		t.Errorf("reasoning none: %s", answer)
	}
}

// gather joins what an answer of any of the APIs says: its thoughts, its text, and a call's name and arguments.
func gather(t *testing.T, body string, stream bool) (thought, said, call string) {
	t.Helper()
	var walk func(v any, key string)
	walk = func(v any, key string) {
		switch x := v.(type) {
		case []any:
			for _, y := range x {
				walk(y, key)
			}
		case map[string]any:
			kind, _ := x["type"].(string)
			if stream && (strings.HasSuffix(kind, ".done") || strings.HasPrefix(kind, "response.c") || kind == "response.in_progress") && kind != "response.function_call_arguments.delta" {
				return // says again what the deltas said
			}
			if name, ok := x["name"].(string); ok && (key == "function" || kind == "tool_use" || kind == "function_call") {
				call += name
			}
			if kind == "response.reasoning_text.delta" {
				thought += x["delta"].(string)
			} else if kind == "response.output_text.delta" {
				said += x["delta"].(string)
			} else if kind == "response.function_call_arguments.delta" {
				call += x["delta"].(string)
			}
			for _, k := range []string{"choices", "message", "delta", "content_block", "content", "output", "item", "tool_calls", "function", "reasoning_content", "thinking", "text", "arguments", "partial_json", "input"} {
				if y, ok := x[k]; ok {
					inner := k
					if kind == "reasoning_text" && k == "text" {
						inner = "thinking"
					}
					walk(y, inner)
				}
			}
			if in, ok := x["input"].(map[string]any); ok && !stream {
				b, _ := json.Marshal(in)
				call += string(b)
			}
		case string:
			switch key {
			case "reasoning_content", "thinking":
				thought += x
			case "content", "text":
				said += x
			case "arguments", "partial_json":
				call += x
			}
		}
	}
	if !stream {
		var v any
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatal(err)
		}
		walk(v, "")
		return
	}
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(line, "data: ")
		var v any
		if ok && json.Unmarshal([]byte(data), &v) == nil {
			walk(v, "")
		}
	}
	return
}

// TestForcedCallsShare: equal tools behind other prompts are one constraint; a prompt that has begun a thought has another.
func TestForcedCallsShare(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{})
	u := &toolUse{tools: []tool{{Name: "f"}}, choice: "required", form: answer.FormOf("{{ '<tool_call>' }}{{ '</think>' }}")}
	made := map[*grammar.Machine]bool{}
	for _, tail := range []string{"one", "two", "<think>\n"} {
		var r Request
		if err := u.constrain(t.Context(), b.Server, &r, tail); err != nil {
			t.Fatal(err)
		}
		made[r.Machine] = true
	}
	if len(made) != 2 {
		t.Errorf("%d constraints, want 2", len(made))
	}
}

// TestBillingLine: the block that Claude Code changes with each request is not part of the prompt.
func TestBillingLine(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{})
	count := func(system string) any {
		_, body := b.post("/v1/messages/count_tokens", `{"messages":[{"role":"user","content":"a"}],"system":`+system+`}`)
		return dig(t, body, "input_tokens")
	}
	if with, without := count(`[{"type":"text","text":"x-anthropic-billing-header: cch=1a;"},{"type":"text","text":"s"}]`), count(`"s"`); with != without {
		t.Errorf("%v tokens with the line, %v without", with, without)
	}
}
