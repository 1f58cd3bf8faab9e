package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// infer runs one command line with its standard input.
func inferWith(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestScoreCommand(t *testing.T) {
	rows := `{"pred":"the cat","answers":["Cat!","dog"],"length":10}` + "\n\n" + `{"pred":"x","answers":["y"],"length":9000}`
	code, out, errs := inferWith(t, rows, "score", "--task", "hotpotqa")
	if code != 0 || out != "{\"score\": 1}\n{\"score\": 0}\n" || !strings.Contains(errs, "50.00 over 2 rows; 0-4k 100.00, 8k+ 0.00") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	for want, x := range map[int][2]string{2: {"nope", rows}, 3: {"trec", rows}} {
		if code, _, errs := inferWith(t, x[1], "score", "--task", x[0]); code != want || strings.Count(errs, "\n") != 1 {
			t.Errorf("task %s: exit %d, want %d: %q", x[0], code, want, errs)
		}
	}
	for _, bad := range []string{"{", `{"pred":"x"}`, "", `{"pred":1,"answers":[]}`} {
		if code, _, errs := inferWith(t, bad, "score", "--task", "qasper"); code != 3 {
			t.Errorf("%q: exit %d %q", bad, code, errs)
		}
	}
}

const tinyModel = "../../weights/gguf/testdata/tiny.gguf"

// evalData is a LongBench folder with one task of short rows.
func evalData(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	row := `{"input":"q","context":"a b","answers":["a"],"length":3,"dataset":"lcc","all_classes":null,"_id":"1"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "lcc.jsonl"), []byte(row+row), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dataset2prompt.json"), []byte(`{"lcc":"{context}{input}"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A run, its resumption, refusal of other options, and a comparison, end to end on a tiny model.
func TestEvalAndCompareCommands(t *testing.T) {
	data, out := evalData(t), filepath.Join(t.TempDir(), "run")
	args := []string{"eval", "-m", tinyModel, "--suite", "longbench", "--tasks", "lcc", "--data", data, "--max-context", "30", "--policy", "full", "--policy", "streaming_llm:sinks=1", "--budget", "0.5", "--out", out, "-t", "1"}
	code, stdout, errs := inferWith(t, "", args...)
	if code != 0 || !strings.Contains(stdout, "streaming_llm:sinks=1,budget=0.5") {
		t.Fatalf("exit %d\n%s%s", code, stdout, errs)
	}
	var res struct {
		Complete bool
		Tasks    []struct {
			N      int
			Failed int
		}
	}
	raw, err := os.ReadFile(filepath.Join(out, "results.json"))
	if err != nil || json.Unmarshal(raw, &res) != nil || !res.Complete || len(res.Tasks) != 2 || res.Tasks[0].N != 2 || res.Tasks[0].Failed+res.Tasks[1].Failed != 0 {
		t.Errorf("%v %s", err, raw)
	}
	for _, file := range []string{"options.json", "machine.json", "samples.jsonl", "pred/tiny.gguf/lcc.jsonl", "pred/tiny.gguf@streaming_llm-sinks=1-budget=0.5/lcc.jsonl"} {
		if _, err := os.Stat(filepath.Join(out, file)); err != nil {
			t.Error(err)
		}
	}
	if code, _, errs := inferWith(t, "", args...); code != 0 || !strings.Contains(errs, "taking up a run with 4 outcomes") {
		t.Errorf("again: exit %d %s", code, errs)
	}
	if code, _, errs := inferWith(t, "", append(args, "--limit", "1")...); code != 2 || !strings.Contains(errs, "settings.") {
		t.Errorf("another limit: exit %d %s", code, errs)
	}
	if code, _, _ := inferWith(t, "", append(args, "--resume=false")...); code != 2 {
		t.Errorf("--resume=false: exit %d", code)
	}
	page := filepath.Join(t.TempDir(), "c.html")
	code, stdout, errs = inferWith(t, "", "compare", out, "--html", page)
	if code != 0 || !strings.Contains(stdout, "longbench: ") {
		t.Errorf("compare: exit %d %s", code, errs)
	}
	if raw, err := os.ReadFile(page); err != nil || !bytes.Contains(raw, []byte("What was run")) {
		t.Error("page", err)
	}
	svg := filepath.Join(t.TempDir(), "p.svg")
	if code, stdout, errs = inferWith(t, "", "compare", out, "--markdown", "--svg", svg); code != 0 || !strings.Contains(stdout, "| `full` |") {
		t.Errorf("compare --markdown: exit %d %s", code, errs)
	}
	if _, err := os.Stat(svg); err != nil {
		t.Error(err)
	}
	code, stdout, _ = inferWith(t, "", "compare", out, "--json")
	if code != 0 || !json.Valid([]byte(stdout)) {
		t.Errorf("compare --json: exit %d", code)
	}
	drawn := filepath.Join(t.TempDir(), "f.svg")
	for _, flags := range [][]string{{"--csv"}, {"--frontier", drawn}} {
		if code, _, errs = inferWith(t, "", append([]string{"compare", out}, flags...)...); code != exitUsage || !strings.Contains(errs, "suite agreement") {
			t.Errorf("compare %v of longbench: exit %d %s", flags, code, errs)
		}
	}
	if _, err := os.Stat(drawn); err == nil {
		t.Error("a picture of nothing was left")
	}
}

// A run whose samples all fail ends with an error and keeps them.
func TestEvalAllFail(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	essays := t.TempDir()
	if err := os.WriteFile(filepath.Join(essays, "a.txt"), []byte(strings.Repeat("One sentence of an essay. ", 400)), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := inferWith(t, "", "eval", "-m", tinyModel, "--suite", "niah", "--data", essays, "--lengths", "100k", "--depths", "0,50", "--out", out, "-t", "1")
	if code != 1 || !strings.Contains(errs, "all 2 samples failed") || !strings.Contains(errs, "does not fit the context") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if raw, err := os.ReadFile(filepath.Join(out, "samples.jsonl")); err != nil || bytes.Count(raw, []byte("\n")) != 2 {
		t.Errorf("%v %s", err, raw)
	}
}

// TestPerplexityPolicies: a policy that would change nothing is refused by name; those that are full are not.
func TestPerplexityPolicies(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("a b c ", 30)), 0o600); err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[string]int{"full": 0, "flexgen": 0, "streaming_llm:budget=20%": exitUsage, "sliminfer": exitUsage, "quest": exitUsage} {
		code, _, errs := inferWith(t, "", "perplexity", "-m", tinyModel, "--file", text, "--chunk", "32", "--policy", policy)
		if code != want || want != 0 && !strings.Contains(errs, "--policy "+policy) {
			t.Errorf("--policy %s: exit %d, want %d: %s", policy, code, want, errs)
		}
	}
}

// TestEvalUnfit: a policy whose options cannot hold for the model is refused before a sample is run, not failed by each.
func TestEvalUnfit(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("a b c ", 30)), 0o600); err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[string]int{"sliminfer:keep=50%/25%/20%/15%/10%": exitUsage, "sliminfer": 0, "infinigen": 0} {
		out := filepath.Join(dir, policy[:6])
		code, _, errs := inferWith(t, "", "eval", "-m", tinyModel, "--suite", "perplexity", "--data", text, "--chunk", "32", "--policy", "full", "--policy", policy, "--out", out)
		if _, err := os.Stat(out); code != want || want != 0 && (err == nil || !strings.HasPrefix(errs, "infer: --policy "+policy+": sliminfer: keep has 5 values")) {
			t.Errorf("--policy %s: exit %d, want %d; folder: %v; %s", policy, code, want, err, errs)
		}
		_ = os.RemoveAll(out)
	}
}

func TestEvalUsage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "r")
	for name, x := range map[string]struct {
		want int
		args []string
	}{
		"no out":          {2, []string{"--suite", "longbench", "--data", "."}},
		"no suite":        {2, []string{"--out", out}},
		"unknown suite":   {2, []string{"--out", out, "--suite", "x"}},
		"unknown task":    {2, []string{"--out", out, "--suite", "longbench", "--data", ".", "--tasks", "x"}},
		"no data":         {2, []string{"--out", out, "--suite", "longbench"}},
		"missing data":    {3, []string{"--out", out, "--suite", "longbench", "--data", "/nonexistent"}},
		"unknown policy":  {2, []string{"--out", out, "--suite", "ruler", "--policy", "nonsense"}},
		"policy twice":    {2, []string{"--out", out, "--suite", "ruler", "--policy", "full", "--policy", "full"}},
		"bad budget":      {2, []string{"--out", out, "--suite", "ruler", "--policy", "h2o", "--budget", "-3"}},
		"negative limit":  {2, []string{"--out", out, "--suite", "ruler", "--data", ".", "--limit", "-1"}},
		"other's flag":    {2, []string{"--out", out, "--suite", "ruler", "--data", ".", "--max-context", "100"}},
		"depths of ruler": {2, []string{"--out", out, "--suite", "ruler", "--data", ".", "--depths", "50"}},
		"tasks of niah":   {2, []string{"--out", out, "--suite", "niah", "--data", ".", "--tasks", "vt"}},
		"join, no server": {2, []string{"--join", "--suite", "ruler"}},
		"join and out":    {2, []string{"--join", "--out", out, "--workers", "nats://x", "--suite", "ruler"}},
		"compare nothing": {3, nil},
		"batch 0":         {2, []string{"--out", out, "--suite", "ruler", "--data", ".", "--batch", "0"}},
		"batch 65":        {2, []string{"--out", out, "--suite", "ruler", "--data", ".", "--batch", "65"}},
		"batch, workers":  {2, []string{"--out", out, "--suite", "ruler", "--data", ".", "--batch", "2", "--workers", "nats://x"}},
		"batch, tier":     {2, []string{"--out", out, "--suite", "ruler", "--data", ".", "--batch", "2", "--tier", "host=1MiB"}},
	} {
		args := append([]string{"eval", "-m", tinyModel}, x.args...)
		if x.args == nil {
			args = []string{"compare", t.TempDir()}
		}
		if code, _, errs := inferWith(t, "", args...); code != x.want || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, want %d: %q", name, code, x.want, errs)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a refused command left a folder")
	}
}
