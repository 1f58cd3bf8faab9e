package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A template of the user's takes the place of the model's: a model without one then answers as if it had been given the rendered
// text. What is no template is refused.
func TestChatTemplateFile(t *testing.T) {
	model, dir := synthModel(t), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ids := func(args ...string) (g generation) {
		t.Helper()
		code, out, errs := runCommand(append([]string{"generate", "-m", model, "--temp", "0", "-n", "6", "--ignore-eos", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &g); code != exitDone || err != nil {
			t.Fatalf("exit %d, %v: %s", code, err, errs)
		}
		return g
	}
	mine := write("mine.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}|")
	got := ids("--chat-template", mine, "--system", "s", "abc")
	in := write("in.jsonl", `{"prompt":"<system>s<user>abc|"}`+"\n")
	plain := ids("--raw", "<system>s<user>abc|")
	bos := plain.PromptTokens - got.PromptTokens // a raw prompt begins with the model's own first token
	if got.PromptTokens < 10 || bos < 0 || bos > 1 {
		t.Errorf("rendered: %d tokens, the same text raw: %d", got.PromptTokens, plain.PromptTokens)
	}
	code, out, errs := runCommand("generate", "-m", model, "--temp", "0", "-n", "6", "--ignore-eos", "--jsonl", in, "--chat-template", write("plain.jinja", "{{ messages[0].content }}"))
	if code != exitDone {
		t.Fatal(errs)
	}
	if a := rowAnswers(t, out)[1]; a.Text != got.Text {
		t.Errorf("rendered by hand %q, by the template %q", a.Text, got.Text)
	}
	for name, path := range map[string]string{"empty": write("empty.jinja", " \n"), "not UTF-8": write("bad.jinja", "\xff"), "broken": write("broken.jinja", "{% for %}"), "none": filepath.Join(dir, "none")} {
		if code, _, errs := runCommand("generate", "-m", model, "--chat-template", path, "abc"); code != exitData || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d %q", name, code, errs)
		}
	}
}
