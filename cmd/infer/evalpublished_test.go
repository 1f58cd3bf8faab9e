package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEvalPublished: each benchmark that is read as published runs, takes a larger limit, and refuses what is not for it.
func TestEvalPublished(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, rows ...string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	long := `{"context": "c", "question": "q", "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d", "answer": "A", "length": "short"}`
	for suite, data := range map[string]string{
		"longbench-v2":  put("data.json", "["+long+", "+long+"]"),
		"infinitebench": put("passkey.jsonl", `{"context": "a b", "input": "q", "answer": ["1"]}`, `{"context": "a b", "input": "q", "answer": ["2"]}`),
		"loogle":        put("shortdep_cloze.jsonl", `{"input": "t", "qa_pairs": "[{'Q': 'a', 'A': {'<mask-0>': 'x'}}, {'Q': 'b', 'A': {'<mask-0>': 'y'}}]"}`),
		"math":          put("math.jsonl", `{"problem": "p", "answer": "1"}`, `{"problem": "q", "answer": "2"}`),
	} {
		out := filepath.Join(dir, "run-"+suite)
		args := []string{"eval", "-m", tinyModel, "--suite", suite, "--data", data, "--tokens", "2", "--max-context", "40", "--policy", "full", "--policy", "streaming_llm:sinks=1,budget=8", "--out", out, "-t", "1"}
		for _, limit := range []string{"1", "2"} {
			code, _, errs := runCommand(append(args, "--limit", limit)...)
			samples, _ := os.ReadFile(filepath.Join(out, "samples.jsonl"))
			if code != exitDone || strings.Count(string(samples), `"score":0`) != 2*int(limit[0]-'0') {
				t.Errorf("%s, limit %s: exit %d, %s\n%s", suite, limit, code, errs, samples)
			}
		}
		if code, stdout, errs := runCommand("compare", out); code != exitDone || !strings.Contains(stdout, "streaming_llm") {
			t.Errorf("%s: compare: exit %d, %s %s", suite, code, stdout, errs)
		}
	}
	bad := put("bad.jsonl", `{"problem": "p"}`)
	for what, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a bad row":     {[]string{"--suite", "math", "--tasks", "aime", "--data", bad}, exitData, "bad.jsonl, row 1"},
		"an odd name":   {[]string{"--suite", "math", "--data", bad}, exitData, "--tasks"},
		"no task":       {[]string{"--suite", "loogle", "--tasks", "shortdep", "--data", bad}, exitUsage, "shortdep_qa"},
		"lengths":       {[]string{"--suite", "math", "--lengths", "4k", "--data", bad}, exitUsage, "--lengths"},
		"a wrong count": {[]string{"--suite", "math", "--tokens", "-1", "--data", bad}, exitUsage, "--tokens"},
		"no data":       {[]string{"--suite", "longbench-v2"}, exitUsage, "--data"},
	} {
		code, _, errs := runCommand(append([]string{"eval", "-m", tinyModel, "--out", filepath.Join(dir, "none")}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, %q: want %d with %q", what, code, errs, c.code, c.says)
		}
	}
}
