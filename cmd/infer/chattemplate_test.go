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

// TestShowTemplate: an example conversation as the template writes it, with a tool where it knows tools and without what it refuses.
func TestShowTemplate(t *testing.T) {
	model, dir := synthModel(t), t.TempDir()
	show := func(template string, args ...string) (int, string, string) {
		t.Helper()
		path := filepath.Join(dir, "t.jinja")
		if err := os.WriteFile(path, []byte(template), 0o600); err != nil {
			t.Fatal(err)
		}
		return runCommand(append([]string{"show", model, "--template", "--chat-template", path}, args...)...)
	}
	const turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.name }}]{% endfor %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
	for name, c := range map[string]struct{ template, want, notice string }{
		"plain":     {turns, "<system>You are a helpful assistant.<user>Why is the sky blue?<assistant>Because air scatters blue light most.<user>Thanks!<assistant>\n", "without tools"},
		"tools":     {"{{ tools[0].function.name }}:" + turns, "weather:<system>You are a helpful assistant.<user>Why is the sky blue?<assistant>Because air scatters blue light most.<user>And how is the weather in Rome?<assistant>[weather]<tool>21 degrees<assistant>It is 21 degrees.<user>Thanks!<assistant>\n", ""},
		"no system": {"{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + turns, "<user>Why is the sky blue?<assistant>Because air scatters blue light most.<user>Thanks!<assistant>\n", "a system message"},
	} {
		code, out, errs := show(c.template)
		if code != exitDone || out != c.want || !strings.Contains(errs, c.notice) || c.notice == "" && errs != "" {
			t.Errorf("%s: exit %d %q %q, want %q", name, code, out, errs, c.want)
		}
	}
	var j struct{ Name, Prompt string }
	if code, out, _ := show("{{ messages[0].role }}", "--json"); code != exitDone || json.Unmarshal([]byte(out), &j) != nil || j.Prompt != "system" || j.Name == "" {
		t.Errorf("--json: exit %d %s", code, out)
	}
	if code, _, errs := show("{{ raise_exception('never') }}"); code != exitData || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "never") {
		t.Errorf("a template that refuses all: exit %d %q", code, errs)
	}
	if code, _, errs := runCommand("show", model, "--template"); code != exitData || !strings.Contains(errs, "no chat template") {
		t.Errorf("no template: exit %d %q", code, errs)
	}
}
