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

// TestExpertBias: --expert-bias says what it has changed; where it saves nothing, or means nothing, it is refused in one line.
func TestExpertBias(t *testing.T) {
	dir := t.TempDir()
	dense, experts := filepath.Join(dir, "dense.gguf"), filepath.Join(dir, "experts.gguf")
	for path, flags := range map[string][]string{dense: {"--arch", "llama"}, experts: {"--arch", "gpt-oss", "--experts", "16", "--experts-used", "4"}} {
		if code, _, stderr := runCommand(append([]string{"synth", path, "--layers", "3", "--hidden", "128", "--heads", "2", "--kv-heads", "1", "--head-dim", "64", "--ffn", "256", "--vocab", "300", "--context", "256", "--type", "Q8_0"}, flags...)...); code != 0 {
			t.Fatal(stderr)
		}
	}
	run := func(model string, flags ...string) (code int, stderr string, w streamJSON) {
		code, stdout, stderr := runCommand(append([]string{"generate", "-m", model, "--raw", "-p", "some words", "-n", "40", "--temperature", "0", "--ignore-eos", "--json", "--quiet"}, flags...)...)
		var a struct {
			Weights streamJSON `json:"weights"`
		}
		if code == 0 {
			if err := json.Unmarshal([]byte(stdout), &a); err != nil {
				t.Fatal(err)
			}
		}
		return code, stderr, a.Weights
	}
	const budget = "host=3MiB"
	_, _, plain := run(experts, "--weights", budget)
	code, stderr, w := run(experts, "--weights", budget, "--expert-bias", "margin=50%,experts=3")
	if b := w.Bias; code != 0 || b == nil || b.Moved == 0 || b.Dropped*4 != b.Choices || plain.Bias != nil || w.BytesRead >= plain.BytesRead {
		t.Errorf("code %d %s: %+v of %+v, without %+v", code, stderr, w.Bias, w, plain)
	}
	for _, c := range []struct {
		model string
		flags []string
		says  string
	}{
		{filepath.Join(dir, "none.gguf"), []string{"--expert-bias", "margin=20%"}, "all weights are in memory"}, // before a model is looked for
		{experts, []string{"--weights", budget, "--expert-bias", "20%"}, "margin=SHARE"},
		{experts, []string{"--weights", budget, "--expert-bias", "margin=100%"}, "100%"},
		{experts, []string{"--weights", budget, "--expert-bias", "experts=4"}, "fewer than the model's 4"},
		{dense, []string{"--memory", "1GiB", "--expert-bias", "experts=1"}, "no experts"},
	} {
		if code, stderr, _ := run(c.model, c.flags...); code != exitUsage || !strings.Contains(stderr, c.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: code %d: %q, want %q", c.flags, code, stderr, c.says)
		}
	}
}
