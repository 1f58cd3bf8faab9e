package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBenchRecordsScores: scores of a model are recorded, and a synthetic trace is fitted to them; what cannot be recorded is refused.
func TestBenchRecordsScores(t *testing.T) {
	dir := t.TempDir()
	small, trace := filepath.Join(dir, "small.gguf"), filepath.Join(dir, "trace")
	if code, _, stderr := inferWith(t, "", "synth", small, "--layers", "6", "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--vocab", "300", "--type", "F32"); code != 0 {
		t.Fatal(stderr)
	}
	args := []string{"bench", "-m", small, "-p", "0", "-n", "48", "-d", "100", "-t", "1", "--record-trace", trace}
	code, stdout, stderr := inferWith(t, "", append(args, "--policy", "hillinfer:alpha=0.2")...)
	if code != 0 || !strings.Contains(stdout, "100 tokens, 48 steps, 6 of 6 layers") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = inferWith(t, "", "simulate", "--fit", trace); code != 0 || !strings.Contains(stdout, "built in") || strings.Count(stdout, "hits, ") != 16 {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	for name, more := range map[string][]string{"no scores": {"--policy", "full"}, "two policies": {"--policy", "full", "--policy", "hillinfer"}, "a batch": {"--policy", "hillinfer", "--batch", "2"}} {
		if code, _, stderr := inferWith(t, "", append(args, more...)...); code != 2 {
			t.Errorf("%s: exit %d: %s", name, code, stderr)
		}
	}
}
