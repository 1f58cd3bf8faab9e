package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// An infer process that is killed with SIGKILL again and again loses no outcome that it had written, and the same command
// then finishes the run with the outcomes of an unbroken one; so it does where samples decode together.
func TestEvalKilledAndTakenUp(t *testing.T) {
	for _, batch := range []string{"1", "4"} {
		t.Run("batch "+batch, func(t *testing.T) { killedAndTakenUp(t, batch) })
	}
}

func killedAndTakenUp(t *testing.T, batch string) {
	const rows = 24
	data, model := workersData(t, rows)
	out := filepath.Join(t.TempDir(), "run")
	args := []string{"eval", "-m", model, "--suite", "longbench", "--tasks", "lcc", "--data", data, "--policy", "full", "--policy", "streaming_llm:sinks=1,budget=8", "-t", "1"}
	alone := filepath.Join(t.TempDir(), "alone")
	if code, _, errs := inferWith(t, "", append(slices.Clone(args), "--out", alone)...); code != 0 {
		t.Fatal(errs)
	}
	args = append(args, "--batch", batch)
	written := func() int {
		raw, err := os.ReadFile(filepath.Join(out, "samples.jsonl"))
		if err != nil {
			return 0
		}
		return bytes.Count(raw, []byte("\n"))
	}
	kept := 0
	for kill := range 3 {
		cmd, errs := inferProcess(t, append(slices.Clone(args), "--out", out)...)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for running := true; running && written() < kept+5; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("it ended by itself: %v: %s", err, errs)
				}
				ended <- nil // a machine that let it finish before it could be killed
				running = false
			case <-time.After(2 * time.Millisecond):
			}
		}
		_ = cmd.Process.Kill()
		<-ended
		if n := written(); n < kept {
			t.Fatalf("kill %d: %d outcomes, %d were there before", kill, n, kept)
		}
		kept = written()
	}
	code, _, errs := inferWith(t, "", append(slices.Clone(args), "--out", out)...)
	if code != 0 || !strings.Contains(errs, fmt.Sprintf("taking up a run with %d outcomes", kept)) {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if got, want := answers(t, out), answers(t, alone); len(want) != 2*rows || !slices.Equal(got, want) {
		t.Errorf("%d outcomes after three kills, %d of an unbroken run; equal: %v", len(got), len(want), slices.Equal(got, want))
	}
}
