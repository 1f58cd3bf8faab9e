package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"terrace/internal/golden"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain, é, 日本, 🙂\n\t": "plain, é, 日本, 🙂\n\t", "\x1b]0;x\x07": `\x1b]0;x\x07`, "a\rb\x7f\x00": `a\x0db\x7f\x00`, "\u009b1m": `\u009b1m`, "cut \xc3": `cut \xc3`, "\ufffd": "\ufffd",
	} {
		if got := visible(text, "\n\t"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := visible("two\nlines", ""); got != `two\x0alines` {
		t.Errorf("a cell: %q", got)
	}
}

// escModel is a model that says ESC, and whose name has control sequences; controls are what must not reach a terminal.
func escModel(t *testing.T) (path string, controls []string) {
	t.Helper()
	var j struct{ Controls []string }
	data, err := os.ReadFile(golden.Shared(t, "data", "cases", "esc.json"))
	if err != nil || json.Unmarshal(data, &j) != nil {
		t.Fatal(err)
	}
	return golden.Shared(t, "data", "cases", "esc.gguf"), j.Controls
}

// TestControlsOfModels: metadata and a model's text do not steer a terminal; generate hands the text to a pipe as it is.
func TestControlsOfModels(t *testing.T) {
	model, controls := escModel(t)
	for _, args := range [][]string{{"show", model}, {"show", model, "--tensors"}, {"list"}} {
		_, out, errs := inferWith(t, "", args...)
		for _, c := range controls {
			if strings.Contains(out+errs, c) {
				t.Errorf("%v: %q in %q %q", args, c, out, errs)
			}
		}
	}
	generate := []string{"generate", "--model", model, "--raw", "--temperature", "0", "-n", "3", "-p", "a"}
	if _, out, errs := inferWith(t, "", generate...); strings.TrimRight(out, "\n") != "\x1b\x1b\x1b" {
		t.Errorf("to a pipe: %q %s", out, errs)
	}
	if _, out, _ := inferWith(t, "hi\n", "chat", "--model", model, "--temperature", "0", "-n", "3"); strings.Contains(out, "\x1b") || !strings.Contains(out, `\x1b\x1b\x1b`) {
		t.Errorf("chat to a pipe: %q", out)
	}
}
