package main

import (
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
)

// TestDraft: a model that guesses for itself guesses right, and the text stays the same; --draft is another name of --speculate draft=.
func TestDraft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if code, _, errs := runCommand("synth", path, "--layers", "2", "--hidden", "64", "--head-dim", "32", "--ffn", "96", "--vocab", "300", "--type", "F32"); code != exitDone {
		t.Fatalf("synth: exit %d, %s", code, errs)
	}
	type answer struct {
		Text        string
		Speculation *speculationJSON
	}
	run := func(args ...string) (a answer) {
		code, out, errs := runCommand(append([]string{"generate", "-m", path, "--raw", "-n", "16", "--temperature", "0", "--ignore-eos", "--json", "a b c"}, args...)...)
		if code != exitDone {
			t.Fatalf("%v: exit %d, %s", args, code, errs)
		}
		if err := json.Unmarshal([]byte(out), &a, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		return a
	}
	plain := run()
	for _, args := range [][]string{{"--draft", path}, {"--speculate", "draft=" + path}} {
		if got := run(args...); got.Text != plain.Text || got.Speculation == nil || got.Speculation.Accepted < 8 {
			t.Errorf("%v: %q, want %q; %+v", args, got.Text, plain.Text, got.Speculation)
		}
	}
}
