package tokenizer

import (
	"strings"
	"testing"
)

// TestRenderTools: a template sees tools as a variable, in their order.
func TestRenderTools(t *testing.T) {
	v := Vocab{Model: ModelBPE, Tokens: []string{"a", "b"}, Types: []TokenType{1, 1}, BOS: -1, EOS: -1, UNK: -1, PAD: -1,
		ChatTemplate: "{% if tools %}{% for t in tools %}{{ t.function.name }}: {{ t | tojson }}\n{% endfor %}{% endif %}{{ messages[0].content }}"}
	tok, err := New(v)
	if err != nil {
		t.Skip("this vocabulary is not taken:", err)
	}
	got, err := tok.RenderTools([]Message{{"user", "hi"}}, `[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":[true,null,1.5]}}}]`, true)
	if err != nil || !strings.HasPrefix(got, "f: {") || !strings.HasSuffix(got, "\nhi") || strings.Index(got, `"z"`) > strings.Index(got, `"a"`) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := tok.RenderChat([]Message{{"user", "hi"}}, true); err != nil || got != "hi" {
		t.Errorf("without tools: %q, %v", got, err)
	}
}
