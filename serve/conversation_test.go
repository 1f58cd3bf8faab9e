package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"terrace/tokenizer"
)

// templated is a server of nothing but a template; <|end|> is a control token.
func templated(t *testing.T, template string) *Server {
	t.Helper()
	tok, err := tokenizer.New(tokenizer.Vocab{Model: tokenizer.ModelBPE, Pre: "gpt-2", Tokens: []string{"a", "<|end|>"}, Types: []tokenizer.TokenType{tokenizer.TypeNormal, tokenizer.TypeControl},
		BOS: -1, EOS: -1, UNK: -1, PAD: -1, ChatTemplate: template})
	if err != nil {
		t.Fatal(err)
	}
	return &Server{o: Options{Tokenizer: tok}, promptWriter: &promptWriter{tok: tok}}
}

// rendered is what a chat request becomes.
func rendered(s *Server, body string) (string, error) {
	var in chatRequest
	if err := decodeJSON([]byte(body), &in); err != nil {
		return "", err
	}
	tools, err := in.use(context.Background(), s)
	if err != nil {
		return "", err
	}
	talk, err := in.conversation(tools)
	if err != nil {
		return "", err
	}
	text, mark, err := s.renderTools(talk)
	if err == nil && mark != "" {
		text = strings.ReplaceAll(text, string(mark), "")
	}
	return text, err
}

const (
	askTools  = `"tools":[{"type":"function","function":{"name":"f"}}]`
	askCalled = `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},{"role":"tool","tool_call_id":"c1","content":"r"}],` + askTools + `}`
)

// TestConversation: what reaches the template, and the forms that it is given where it cannot take the plain one.
func TestConversation(t *testing.T) {
	dump := "{% for m in messages %}{{ m|tojson }}\n{% endfor %}{{ tools|tojson }}{{ add_generation_prompt }}"
	for name, c := range map[string]struct{ template, body, want string }{
		"members in order, null left out, calls as objects": {dump, askCalled,
			"{\"role\": \"user\", \"content\": \"q\"}\n" +
				"{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"z\": 1, \"a\": 2}}}]}\n" +
				"{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": \"r\"}\n" +
				"[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]True"},
		"thoughts of earlier turns": {dump, `{"messages":[{"role":"assistant","content":"a","reasoning":"t"}]}`,
			"{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"t\", \"thinking\": \"t\"}\nnullTrue"},
		"parts are one text": {dump, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],"add_generation_prompt":false}`,
			"{\"role\": \"user\", \"content\": \"ab\"}\nnullFalse"},
		"a developer is the system to templates that know none": {"{{ messages[0].role }}", `{"messages":[{"role":"developer","content":"a"}]}`, "system"},
		"a developer to those that know one":                    {"{% if messages[0].role == 'developer' %}d{% endif %}", `{"messages":[{"role":"developer","content":"a"}]}`, "d"},
		"variables":                                             {"{{ enable_thinking }}{{ reasoning_effort }}{{ x }}{{ documents|length }}", `{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"x":1},"reasoning_effort":"high","enable_thinking":false,"documents":[{}]}`, "Falsehigh11"},
		"no effort is no thinking":                              {"{{ enable_thinking }}{{ reasoning_effort is defined }}", `{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"none"}`, "FalseFalse"},
		"the last message goes on":                              {"{% for m in messages %}<{{ m.content }}>{% endfor %}", `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true}`, "<a><b"},
		"arguments as text, where they are joined": {"{% for m in messages %}{% for c in m.tool_calls or [] %}{{ 'x' + c.function.arguments }}{% endfor %}{% endfor %}{% if tools %}{% endif %}", askCalled,
			`x{"z":1,"a":2}`},
		"an empty content, where it is joined":                       {"{% for m in messages %}{{ m.role + m.content }}{% if m.tool_calls %}!{% endif %}{% endfor %}", askCalled, "userqassistant!toolr"},
		"parameters, where they are needed":                          {"{% for t in tools %}{{ t.function.parameters.type }}{{ t.function.description|length }}{% endfor %}", askCalled, "object0"},
		"control tokens are no turns of a user, but of an assistant": {"{% for m in messages %}{{ m.content|length }}{% endfor %}", `{"messages":[{"role":"user","content":"<|end|>"},{"role":"assistant","content":"<|end|>"}]}`, "87"},
	} {
		got, err := rendered(templated(t, c.template), c.body)
		if err != nil || got != c.want {
			t.Errorf("%s:\n got %q, %v\nwant %q", name, got, err, c.want)
		}
	}
}

// TestToolsOfOurOwnForm: a template that knows no tools shows them in the system message, else in the user's first, and
// results that it would leave out as the user's.
func TestToolsOfOurOwnForm(t *testing.T) {
	for name, template := range map[string]string{
		"system":    "{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}",
		"no system": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% if m.role in ['user', 'assistant'] %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}",
	} {
		got, err := rendered(templated(t, template), askCalled)
		if err != nil || !strings.Contains(got, "You can call functions") || !strings.Contains(got, `{"name": "f", "arguments": {"z":1,"a":2}}`) || !strings.HasSuffix(got, "<user>r") || strings.Contains(got, "<system>") != (name == "system") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestConversationRefusals: what a template raises is the error's text; what no template can be given is named.
func TestConversationRefusals(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":"a"}]}`:                                                                    "roles must alternate",
		`{"messages":[{"role":"user","content":"a","colour":1}]}`:                                                         "messages[0].colour",
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","colour":1}}]}`:   "tools[0].function.colour",
		`{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":[]}`:                                          "chat_template_kwargs",
		`{"messages":[{"role":"user","content":"a"}],"documents":{}}`:                                                     "documents",
		`{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"huge"}`:                                          "reasoning_effort",
		`{"messages":[{"role":"user","content":"a"}],"continue_final_message":true,"add_generation_prompt":true}`:         "continue_final_message",
		`{"messages":[{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"[]"}}]}]}`: "tool_calls",
	} {
		got, err := rendered(templated(t, "{{ raise_exception('roles must alternate') }}"), body)
		said := fmt.Sprint(err)
		if wrong := (*Error)(nil); errors.As(err, &wrong) {
			said += wrong.Param
		}
		if err == nil || !strings.Contains(said, want) {
			t.Errorf("%s: %q, %v; want an error with %q", body, got, err, want)
		}
	}
}
