package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestWeights: a model that is not all in memory gives the same text and says what it took; sizes that mean nothing, or are below a
// step's need, are refused with their code.
func TestWeights(t *testing.T) {
	model := filepath.Join(t.TempDir(), "m.gguf")
	if code, _, stderr := runCommand("synth", model, "--arch", "llama", "--layers", "6", "--hidden", "256", "--head-dim", "32", "--vocab", "400", "--context", "256", "--type", "Q8_0"); code != 0 {
		t.Fatal(stderr)
	}
	type result struct {
		code           int
		stdout, stderr string
	}
	runNoisy := func(flags ...string) (r result) {
		r.code, r.stdout, r.stderr = runCommand(append([]string{"generate", "-m", model, "--raw", "-p", "some words to begin with", "-n", "8", "--temperature", "0", "--ignore-eos", "--json"}, flags...)...)
		return r
	}
	generate := func(flags ...string) result { return runNoisy(append(flags, "--quiet")...) }
	type answer struct {
		IDs     []int       `json:"token_ids"`
		Weights *streamJSON `json:"weights"`
	}
	read := func(r result) (a answer) {
		t.Helper()
		if r.code != 0 {
			t.Fatalf("code %d: %s", r.code, r.stderr)
		}
		if err := json.Unmarshal([]byte(r.stdout), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	want := read(generate())
	if want.Weights != nil {
		t.Error("weights are reported though all are in memory")
	}
	info, err := os.Stat(model)
	if err != nil {
		t.Fatal(err)
	}
	size := int(info.Size())
	budget := size*6/10 + 3<<20
	got := read(generate("--weights", "host="+strconv.Itoa(budget)))
	if w := got.Weights; !slices.Equal(got.IDs, want.IDs) || w == nil || w.BytesRead == 0 || w.BytesResidentPeak > int64(budget) || w.BytesTotal < int64(size)*9/10 {
		t.Errorf("ids %v, want %v; weights %+v", got.IDs, want.IDs, got.Weights)
	}
	for spec, code := range map[string]int{"host=1KiB": exitMemory, "host=banana": exitUsage, "host=-1": exitUsage, "host=0": exitUsage, "ssd=1GiB": exitUsage, "1GiB": exitUsage} {
		if r := generate("--weights", spec); r.code != code || !strings.Contains(r.stderr, "weights") || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("--weights %s: code %d, want %d: %q", spec, r.code, code, r.stderr)
		}
	}
	r := generate("--memory", "16KiB")
	least := regexp.MustCompile(`want ([0-9.]+MiB) at least`).FindStringSubmatch(r.stderr)
	if r.code != exitMemory || least == nil {
		t.Fatalf("--memory 16KiB: code %d, want %d and the least: %q", r.code, exitMemory, r.stderr)
	}
	r = runNoisy("--memory", "1GiB")
	if got := read(r); !slices.Equal(got.IDs, want.IDs) || got.Weights == nil || !strings.Contains(r.stderr, "weights") || !strings.Contains(r.stderr, "KV up to") {
		t.Errorf("--memory 1GiB: ids %v, want %v; %q", got.IDs, want.IDs, r.stderr)
	}
	for _, flags := range [][]string{{"--memory", "banana"}, {"--memory", "0"}, {"--memory", "1GiB", "--weights", "host=1GiB"}, {"--memory", "1GiB", "--backend", "gorgonia"}} {
		if r := generate(flags...); r.code != exitUsage || !strings.Contains(r.stderr, "memory") {
			t.Errorf("%v: code %d: %q", flags, r.code, r.stderr)
		}
	}
	if r := generate("--weights", "host=1GiB", "--backend", "gorgonia"); r.code != exitUsage || !strings.Contains(r.stderr, "native") {
		t.Errorf("another backend: code %d: %q", r.code, r.stderr)
	}
}
