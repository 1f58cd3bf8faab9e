package serve

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
)

const weatherTool = `{"type":"object","properties":{"city":{"$ref":"#/$defs/city"},"unit":{"enum":["C","F"]}},"required":["city","unit"],"additionalProperties":false,"$defs":{"city":{"type":"string","maxLength":5}}}`

// TestConstrainedAnswers: what a random model writes under a constraint is what the constraint says, in every API.
func TestConstrainedAnswers(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{})
	schema := `{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":9},"b":{"enum":["x","y"]}},"required":["a","b"],"additionalProperties":false}`
	for _, c := range []struct{ path, body, get string }{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":200,"seed":1,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}}`, "choices/0/message/content"},
		{"/v1/completions", `{"prompt":"a","max_tokens":200,"seed":2,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}}`, "choices/0/text"},
		{"/v1/responses", `{"input":"a","max_output_tokens":200,"seed":3,"text":{"format":{"type":"json_schema","name":"x","schema":` + schema + `}}}`, "output/0/content/0/text"},
	} {
		status, body := b.post(c.path, c.body)
		text, _ := dig(t, body, c.get).(string)
		var v struct {
			A *int    `json:"a"`
			B *string `json:"b"`
		}
		if err := json.Unmarshal([]byte(text), &v, json.RejectUnknownMembers(true)); status != 200 || err != nil || v.A == nil || *v.A < 0 || *v.A > 9 || v.B == nil || *v.B != "x" && *v.B != "y" {
			t.Errorf("%s: %d %s: %v", c.path, status, body, err)
		}
	}
	if status, body := b.post("/v1/completions", `{"prompt":"a","max_tokens":20,"n":3,"grammar":"root ::= \"yes\" | \"no\" [0-9]{2}"}`); status != 200 || dig(t, body, "choices/2/finish_reason") != "stop" {
		t.Errorf("grammar: %d %s", status, body)
	}
}

// TestAmbiguousGrammar: a grammar that takes too long to tell what may come next is the client's error, and named.
func TestAmbiguousGrammar(t *testing.T) {
	b := newBench(t, engine.Options{Context: 1024}, Options{})
	for path, body := range map[string]string{"/v1/completions": `{"prompt":"a","max_tokens":400,`, "/v1/responses": `{"input":"a","stream":true,"max_output_tokens":400,`} {
		status, reply := b.post(path, body+`"grammar":"root ::= ((\"a\"{0,1000}){0,1000}){0,1000} \"a\"{400}"}`)
		if want := map[bool]int{false: 400, true: 200}[strings.Contains(reply, "response.failed")]; status != want || !strings.Contains(reply, "too ambiguous") || strings.Contains(reply, "server_error") {
			t.Errorf("%s: %d %s", path, status, reply)
		}
	}
}

// dig is a value of JSON by its path.
func dig(t *testing.T, body, path string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for _, step := range strings.Split(path, "/") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case []any:
			if i := int(step[0] - '0'); i < len(x) {
				v = x[i]
				continue
			}
			return nil
		default:
			return nil
		}
	}
	return v
}

// TestForcedCalls: a forcing choice ends in a valid call in each API's own shape, whole and streamed.
func TestForcedCalls(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{})
	valid := func(arguments string) bool {
		var v struct{ City, Unit *string }
		err := json.Unmarshal([]byte(arguments), &v, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true))
		return err == nil && v.City != nil && len([]rune(*v.City)) <= 5 && v.Unit != nil && (*v.Unit == "C" || *v.Unit == "F")
	}
	chat := `{"messages":[{"role":"user","content":"a"}],"max_tokens":300,"seed":7,"tools":[{"type":"function","function":{"name":"weather","parameters":` + weatherTool + `}}],"tool_choice":"required"`
	status, body := b.post("/v1/chat/completions", chat+`}`)
	if a, _ := dig(t, body, "choices/0/message/tool_calls/0/function/arguments").(string); status != 200 || !valid(a) || dig(t, body, "choices/0/finish_reason") != "tool_calls" || dig(t, body, "choices/0/message/content") != nil {
		t.Errorf("chat: %d %s", status, body)
	}
	if _, body = b.post("/v1/chat/completions", chat+`,"stream":true}`); !strings.Contains(body, `"tool_calls":[{"index":0,`) || !strings.Contains(body, `"finish_reason":"tool_calls"`) {
		t.Errorf("chat, streamed: %s", body)
	}
	messages := `{"messages":[{"role":"user","content":"a"}],"max_tokens":300,"seed":7,"tools":[{"name":"weather","input_schema":` + weatherTool + `}],"tool_choice":{"type":"tool","name":"weather"}`
	status, body = b.post("/v1/messages", messages+`}`)
	if in, err := json.Marshal(dig(t, body, "content/0/input")); status != 200 || err != nil || !valid(string(in)) || dig(t, body, "stop_reason") != "tool_use" {
		t.Errorf("messages: %d %s", status, body)
	}
	if _, body = b.post("/v1/messages", messages+`,"stream":true}`); !inOrder(body, `"message_start"`, `"tool_use"`, `"input_json_delta"`, `"content_block_stop"`, `"stop_reason":"tool_use"`, `"message_stop"`) {
		t.Errorf("messages, streamed: %s", body)
	}
	responses := `{"input":"a","max_output_tokens":300,"seed":7,"tools":[{"type":"function","name":"weather","parameters":` + weatherTool + `}],"tool_choice":{"type":"function","name":"weather"}`
	status, body = b.post("/v1/responses", responses+`}`)
	if a, _ := dig(t, body, "output/0/arguments").(string); status != 200 || !valid(a) || dig(t, body, "status") != "completed" {
		t.Errorf("responses: %d %s", status, body)
	}
	if _, body = b.post("/v1/responses", responses+`,"stream":true}`); !inOrder(body, "response.created", "response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done", "response.completed") {
		t.Errorf("responses, streamed: %s", body)
	}
}

func inOrder(text string, parts ...string) bool {
	for _, p := range parts {
		i := strings.Index(text, p)
		if i < 0 {
			return false
		}
		text = text[i+len(p):]
	}
	return true
}

// TestStreamsOfText: Responses and Messages stream the text of chat, in their clients' order of events.
func TestStreamsOfText(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{})
	_, body := b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":9,"temperature":0,"ignore_eos":true}`)
	want := dig(t, body, "choices/0/message/content").(string)
	for _, c := range []struct {
		path, body, delta string
		order             []string
	}{
		{"/v1/messages", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"max_tokens":9,"temperature":0,"ignore_eos":true,"stream":true}`, "delta/text",
			[]string{"event: message_start", "event: content_block_start", `"text":""`, "event: content_block_delta", "event: content_block_stop", "event: message_delta", `"stop_reason":"max_tokens"`, "event: message_stop", `"timings"`}},
		{"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}],"max_output_tokens":9,"temperature":0,"ignore_eos":true,"stream":true}`, "delta",
			[]string{`"sequence_number":0`, "event: response.in_progress", "event: response.output_item.added", "event: response.content_part.added", "event: response.output_text.delta", "event: response.output_text.done", "event: response.content_part.done", "event: response.output_item.done", "event: response.incomplete", `"timings"`}},
	} {
		_, body := b.post(c.path, c.body)
		if !inOrder(body, c.order...) {
			t.Errorf("%s: %s", c.path, body)
		}
		got := ""
		for line := range strings.SplitSeq(body, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if s, ok := dig(t, data, c.delta).(string); ok {
					got += s
				}
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", c.path, got, want)
		}
	}
	if _, body := b.post("/v1/messages/count_tokens", `{"messages":[{"role":"user","content":"a"}]}`); dig(t, body, "input_tokens").(float64) < 2 {
		t.Errorf("count_tokens: %s", body)
	}
}

// TestConstraintsRefused: what cannot be kept is 400 and names its field.
func TestConstraintsRefused(t *testing.T) {
	b := newBench(t, engine.Options{Context: 128}, Options{})
	chat := `{"messages":[{"role":"user","content":"a"}],"max_tokens":3,`
	for body, field := range map[string]string{
		chat + `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"hiccup"}}}}`:                     "response_format",
		chat + `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"pattern":"("}}}}`:                       "response_format",
		chat + `"response_format":{"type":"json_schema","json_schema":{"schema":{"$ref":"http://a.example/b"}}}}`:                    "response_format",
		chat + `"response_format":{"type":"xml"}}`:                                                                                   "response_format",
		chat + `"response_format":{"type":"text","more":1}}`:                                                                         "response_format",
		chat + `"grammar":"root ::= (not valid"}`:                                                                                    "grammar",
		chat + `"grammar":"root ::= \"a\"","response_format":{"type":"json_object"}}`:                                                "grammar",
		chat + `"tool_choice":"required"}`:                                                                                           "tool_choice",
		chat + `"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"nope"}}}`: "tool_choice",
		chat + `"tools":[{"type":"function","function":{"name":"f","x":1}}]}`:                                                        "tools",
		chat + `"tools":[{"type":"function","function":{"name":"f g"}}]}`:                                                            "tools",
	} {
		status, answer := b.post("/v1/chat/completions", body)
		if param, _ := dig(t, answer, "error/param").(string); status != 400 || !strings.HasPrefix(param, field) {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	for path, body := range map[string]string{
		"/v1/responses": `{"input":"a","previous_response_id":"resp_1"}`, "/v1/messages": `{"messages":[{"role":"user","content":[{"type":"image","source":{}}]}],"max_tokens":2}`,
		"/v1/messages/count_tokens": `{"messages":[],"no_such_field":1}`} {
		if status, answer := b.post(path, body); status != 400 || !strings.Contains(answer, "invalid_request_error") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
}
