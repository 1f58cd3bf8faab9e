package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A finished run takes another policy and a larger --limit, and then has the outcomes of a run that had both from the start; a
// smaller limit is refused.
func TestEvalWider(t *testing.T) {
	data, model := workersData(t, 12)
	base := []string{"eval", "-m", model, "--suite", "longbench", "--tasks", "lcc", "--data", data, "-t", "1"}
	run := func(dir string, more ...string) (int, string) {
		code, _, errs := runCommand(append(append(slices.Clone(base), "--out", dir), more...)...)
		return code, errs
	}
	few := "streaming_llm:sinks=1,budget=8"
	dir, once := filepath.Join(t.TempDir(), "wider"), filepath.Join(t.TempDir(), "once")
	if code, errs := run(dir, "--policy", "full", "--limit", "2"); code != 0 {
		t.Fatal(errs)
	}
	if code, errs := run(dir, "--policy", few, "--limit", "5"); code != 0 || !strings.Contains(errs, "policy "+few+" joins the run") {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if code, errs := run(once, "--policy", "full", "--policy", few, "--limit", "5"); code != 0 || strings.Contains(errs, "joins the run") {
		t.Fatalf("a new folder: exit %d: %s", code, errs)
	}
	if got, want := answers(t, dir), answers(t, once); len(want) != 10 || !slices.Equal(got, want) {
		t.Errorf("wider: %d outcomes\n%s\nat once: %d\n%s", len(got), strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
	}
	if code, errs := run(dir, "--policy", "full", "--limit", "4"); code != exitUsage || !strings.Contains(errs, "settings.limit is 5 there, 4 here") {
		t.Errorf("smaller: exit %d: %s", code, errs)
	}
}
