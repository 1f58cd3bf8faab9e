package report

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/run"
)

func TestLMEval(t *testing.T) {
	dir := makeRun(t, "choice", []string{"full", "x:budget=0.5"}, []string{"a", "b"}, 2, func(p, task string, i int) float64 {
		if p == "full" && task == "a" {
			return float64(i)
		}
		return 0.25
	}, nil)
	runs, err := Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	for i := range runs[0].Outcomes {
		o := &runs[0].Outcomes[i]
		o.Values = map[string]float64{"acc_norm": 0.5}
		o.Row = json.RawMessage(`{"gold":1,"greedy":[true,false],"loglikelihoods":[-1.5,-2]}`)
		o.PromptHash = "p"
	}
	for i := range runs[0].Results.Tasks {
		runs[0].Results.Tasks[i].Values = map[string]float64{"acc_norm": 0.5}
	}
	list, err := LMEvalOf(runs)
	if err != nil || len(list) != 2 || list[1].Folder != "dir__m.gguf__x__budget=0.5" {
		t.Fatalf("%v %+v", err, list)
	}
	out := t.TempDir()
	files, err := list[0].Write(out)
	want := []string{"results_2026-11-23T10-00-00.json", "samples_a_2026-11-23T10-00-00.jsonl", "samples_b_2026-11-23T10-00-00.jsonl"}
	if err != nil || len(files) != len(want) {
		t.Fatalf("%v %v", files, err)
	}
	for i, name := range want {
		if files[i] != filepath.Join(out, "dir__m.gguf__full", name) {
			t.Errorf("%s, want %s", files[i], name)
		}
	}
	var got struct {
		Results map[string]map[string]any
		Samples map[string]map[string]any  `json:"n-samples"`
		Higher  map[string]map[string]bool `json:"higher_is_better"`
		Date    float64
	}
	raw, err := os.ReadFile(files[0])
	if err == nil {
		err = json.Unmarshal(raw, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Two samples of 0 and 1: mean 0.5, deviation √½, standard error ½.
	a := got.Results["a"]
	if a["f1,none"] != 0.5 || math.Abs(a["f1_stderr,none"].(float64)-0.5) > 1e-12 || a["sample_len"] != 2.0 || a["acc_norm,none"] != 0.5 || a["acc_norm_stderr,none"] != 0.0 {
		t.Errorf("results %v", a)
	}
	if got.Samples["a"]["effective"] != 2.0 || got.Samples["a"]["original"] != nil || !got.Higher["a"]["f1"] || !got.Higher["a"]["acc_norm"] || got.Date != 1795428000 {
		t.Errorf("%v %v %f", got.Samples, got.Higher, got.Date)
	}
	lines, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(strings.Split(string(lines), "\n")[1]), &line); err != nil {
		t.Fatal(err)
	}
	resps, _ := json.Marshal(line["resps"])
	if line["doc_id"] != 1.0 || line["target"] != "1" || line["f1"] != 1.0 || string(resps) != `[[["-1.5","True"]],[["-2","False"]]]` || line["target_hash"] != digest("1") || line["prompt_hash"] != "p" {
		t.Errorf("%v", line)
	}
}

func TestLMEvalRefuses(t *testing.T) {
	r := Run{Name: "r", Results: &run.Results{Complete: false}}
	if _, err := LMEvalOf([]Run{r}); !errors.Is(err, run.ErrFolder) || !strings.Contains(err.Error(), "not complete") {
		t.Error(err)
	}
	r.Results = &run.Results{Complete: true}
	if _, err := LMEvalOf([]Run{r}); !errors.Is(err, ErrNothing) {
		t.Error(err)
	}
	r.Results.Tasks = []run.TaskResult{{Task: "a", Metric: eval.Metric{Name: "f1"}}}
	if _, err := LMEvalOf([]Run{r}); !errors.Is(err, run.ErrFolder) || !strings.Contains(err.Error(), "when it began") {
		t.Error(err)
	}
}

// TestLMEvalOfGenerated: a task of two filters has the harness's keys, its own number of examples, and what the first filter took.
func TestLMEvalOfGenerated(t *testing.T) {
	one := 1.0
	cell := []eval.Outcome{
		{Task: "gsm8k", ID: "0", Score: &one, Values: map[string]float64{"exact_match,flexible-extract": 1}, Pred: " #### 4", Row: json.RawMessage(`{"answer":"so\n#### 4","strict_match":"4","flexible_extract":"4"}`)},
		{Task: "gsm8k", ID: "1", Score: new(float64), Values: map[string]float64{"exact_match,flexible-extract": 1}, Pred: " 5", Row: json.RawMessage(`{"answer":"#### 5","strict_match":"[invalid]","flexible_extract":"5"}`)},
	}
	task := run.TaskResult{Task: "gsm8k", Metric: eval.Metric{Name: "exact_match,strict-match", Kind: eval.Percent}, Score: run.ScoreOf(eval.Metric{Kind: eval.Percent}, cell),
		Values: map[string]float64{"exact_match,flexible-extract": 1}}
	got := scores(task, cell)
	for key, want := range map[string]float64{"exact_match,strict-match": 0.5, "exact_match_stderr,strict-match": 0.5, "exact_match,flexible-extract": 1, "exact_match_stderr,flexible-extract": 0} {
		if have, ok := got[key].(float64); !ok || math.Abs(have-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", key, got[key], want)
		}
	}
	lines, _, err := sampleLines(task, cell)
	if err != nil {
		t.Fatal(err)
	}
	var line struct {
		Filter, Target string
		Filtered       []string `json:"filtered_resps"`
		Strict         float64  `json:"exact_match"`
	}
	second := strings.Split(string(lines), "\n")[1]
	if err := json.Unmarshal([]byte(second), &line); err != nil || line.Filter != "strict-match" || line.Target != "#### 5" || len(line.Filtered) != 1 || line.Filtered[0] != "[invalid]" || line.Strict != 0 {
		t.Errorf("%v %s", err, second)
	}
	settings := object{"shots": 0.0, "task_shots": object{"gsm8k": 5.0}}
	if shotsOf(settings, "gsm8k") != 5 || shotsOf(settings, "arc_easy") != 0 || shotsOf(object{"shots": 3.0}, "gsm8k") != 3 {
		t.Error("examples")
	}
}
