package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"terrace/weights/stream"
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

// TestRecordExperts: what each token used is in the file, the same with all weights in memory and with a part, there with what was
// predicted; the simulator takes it.
func TestRecordExperts(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "m.gguf")
	if code, _, stderr := runCommand("synth", model, "--arch", "gpt-oss", "--layers", "2", "--hidden", "64", "--heads", "1", "--kv-heads", "1", "--head-dim", "64", "--ffn", "64", "--experts", "32", "--experts-used", "4", "--vocab", "300", "--context", "256", "--type", "Q8_0"); code != 0 {
		t.Fatal(stderr)
	}
	record := func(name string, flags ...string) *stream.Choices {
		t.Helper()
		file := filepath.Join(dir, name)
		if code, _, stderr := runCommand(append([]string{"generate", "-m", model, "--raw", "-p", "some words", "-n", "24", "--temperature", "0", "--ignore-eos", "--quiet", "--record-experts", file}, flags...)...); code != 0 {
			t.Fatal(stderr)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c, err := stream.ReadChoices(f)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	whole, part := record("whole"), record("part", "--weights", "host=1200KiB")
	if n := len(whole.Tokens); n != 23 || n != len(part.Tokens) || whole.Layers != 2 || whole.Experts != 32 || whole.Used != 4 {
		t.Fatalf("%d tokens and %d, %+v", n, len(part.Tokens), whole)
	}
	for i := range whole.Tokens {
		if !slices.EqualFunc(whole.Tokens[i].Used, part.Tokens[i].Used, slices.Equal[[]int]) || whole.Tokens[i].Likely != nil || len(part.Tokens[i].Likely[1]) != 4 {
			t.Errorf("token %d: %+v with all in memory, %+v with a part", i, whole.Tokens[i], part.Tokens[i])
		}
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("some words to read, ", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runCommand("perplexity", "-m", model, "-f", text, "--chunk", "40", "--chunks", "3", "--quiet", "--record-experts", filepath.Join(dir, "read")); code != 0 {
		t.Fatal(stderr)
	}
	if f, err := os.Open(filepath.Join(dir, "read")); err != nil {
		t.Error(err)
	} else if c, err := stream.ReadChoices(f); errors.Join(err, f.Close()) != nil || len(c.Tokens) != 120 {
		t.Errorf("a text of three chunks of 40 tokens: %+v, %v", c, err)
	}
	code, stdout, stderr := runCommand("simulate", "expert-stream", "--set", "model=gpt-oss-20b", "--set", "layers=2", "--set", "vocab=300", "--set", "trace=recorded", "--set", "choices="+filepath.Join(dir, "part"),
		"--set", "other_bytes=0", "--set", "warm=10", "--set", "tokens=10", "--set", "memory_GB=0.5", "--set", "disk_GBps=2")
	if code != 0 || !strings.Contains(stdout, "kept_optimum") {
		t.Errorf("simulate: code %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := runCommand("generate", "-m", model, "--record-experts", filepath.Join(dir, "x"), "--jsonl", model); code != exitUsage || !strings.Contains(stderr, "one text") {
		t.Errorf("--jsonl: code %d: %s", code, stderr)
	}
}
