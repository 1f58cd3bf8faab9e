package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A command that fails before it has done anything leaves nothing; what was there before stays.
func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	prompts := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(prompts, []byte("{\"prompt\":\"a\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := [][]string{
		{"generate", "-m", tinyModel, "--raw", "--tier", "host=1KiB", "--tier", "ssd=" + at("kv") + ",8MiB", "x"},
		{"eval", "-m", tinyModel, "--suite", "perplexity", "--data", prompts, "--chunk", "999999", "--out", at("run")},
		{"generate", "--jsonl", prompts, "--out", at("answers.jsonl"), "-m", at("none")},
		{"generate", "--cpu-profile", at("cpu"), "--memory-profile", at("mem"), "--policy", "nope", "x"},
	}
	for _, args := range commands {
		if code, _, errs := inferWith(t, "", args...); code == exitDone {
			t.Errorf("%v: done, %s", args, errs)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%v left %v", args, left)
		}
	}
	for _, name := range []string{"kv", "run"} {
		if err := os.Mkdir(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("answers.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range commands[:3] {
		inferWith(t, "", args...)
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("of what was there before there is left: %v", left)
	}
}
