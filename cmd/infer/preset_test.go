package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A preset counts as a model's name: it gives what the command line leaves open, and is listed and removed as models are.
func TestPreset(t *testing.T) {
	home := t.TempDir()
	t.Setenv("TERRACE_HOME", home)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	mine := filepath.Join(t.TempDir(), "mine.jinja")
	if err := os.WriteFile(mine, []byte("{{ messages[0].content }} {{ messages[-1].content }}"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := inferWith(t, "", args...)
		if code != want {
			t.Fatalf("%v: exit %d, %s", args, code, errs)
		}
		return out + errs
	}
	run(exitDone, "create", "terse", "--from", tinyModel, "--system", "a b: c", "--chat-template", mine, "--temperature", "0", "--max-tokens", "5", "--stop", "x,y", "--stop", "#z", "--ignore-eos", "--policy", "knorm:ratio=0.5")
	if err := os.Remove(mine); err != nil { // the preset has its own
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(home, "presets", "terse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	full, err := filepath.Abs(tinyModel)
	if err != nil || !strings.Contains(string(raw), "from: "+full+"\n") {
		t.Errorf("%v: %s", err, raw)
	}
	chosen := run(exitDone, "generate", "-m", "terse", "--json", "c")
	again := run(exitDone, "run", "terse", "--json", "c")
	for _, want := range []string{`"policy":"knorm:ratio=0.5"`, `"completion_tokens":5`} {
		if !strings.Contains(chosen, want) || !strings.Contains(again, want) {
			t.Errorf("no %s: %s %s", want, chosen, again)
		}
	}
	if got := run(exitDone, "generate", "-m", "terse", "--json", "--max-tokens", "3", "--policy", "full", "c"); !strings.Contains(got, `"completion_tokens":3`) || !strings.Contains(got, `"policy":"full"`) {
		t.Errorf("the command line does not come first: %s", got)
	}
	t.Setenv("TERRACE_MAX_TOKENS", "2")
	if got := run(exitDone, "generate", "-m", "terse", "--json", "c"); !strings.Contains(got, `"completion_tokens":2`) {
		t.Errorf("the environment does not come before the preset: %s", got)
	}
	t.Setenv("TERRACE_MAX_TOKENS", "")
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("max-tokens: 4\nstop: [q, r]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(exitDone, "generate", "--config", config, "-m", "terse", "--json", "c"); !strings.Contains(got, `"completion_tokens":5`) {
		t.Errorf("the preset does not come before the configuration file: %s", got)
	}
	if got := run(exitDone, "list"); !strings.Contains(got, "terse") || !strings.Contains(got, "preset of "+full) {
		t.Errorf("list: %s", got)
	}
	run(exitDone, "fit", "-m", "terse")
	run(exitUsage, "create", "terse", "--from", tinyModel)
	run(exitDone, "create", "terse", "--from", tinyModel, "--force")
	run(exitDone, "rm", "terse")
	if left, _ := os.ReadDir(filepath.Join(home, "presets")); len(left) != 0 {
		t.Errorf("rm left %v", left)
	}
	run(exitData, "generate", "-m", "terse", "c")
	for _, args := range [][]string{{"create", "Bad Name", "--from", tinyModel}, {"create", "smollm2", "--from", tinyModel}, {"create", "x"}, {"create", "x", "--from", tinyModel, "--top-p", "7"}, {"create", "x", "--from", tinyModel, "--policy", "snapvk"}, {"create", "x", "--from", tinyModel, "--nope"}} {
		run(exitUsage, args...)
	}
	run(exitData, "create", "x", "--from", "nosuchmodel")
	if err := os.WriteFile(filepath.Join(home, "presets", "odd.yaml"), []byte("from: m\nthreads: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(exitData, "generate", "-m", "odd", "c"); !strings.Contains(got, `"threads" is nothing that a preset sets`) {
		t.Errorf("%s", got)
	}
}
