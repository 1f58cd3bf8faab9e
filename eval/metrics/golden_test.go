package metrics

import (
	"bufio"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"terrace/internal/golden"
)

type goldenRow struct {
	Row
	Score float64 `json:"score"`
	Name  string  `json:"name"`
}

func goldenRows(t *testing.T, path string) []goldenRow {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	var rows []goldenRow
	for s.Scan() {
		var r goldenRow
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// Scores, means and length buckets are those of the official code.
func TestScoresEqualToOfficial(t *testing.T) {
	dir := golden.Shared(t, "data", "golden", "metrics")
	raw, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var summary map[string]struct {
		N      int
		Score  float64
		ScoreE map[string]*float64 `json:"score_e"`
		Metric string
	}
	if err := json.Unmarshal(raw, &summary); err != nil {
		t.Fatal(err)
	}
	if len(summary) != len(LongBenchTasks()) {
		t.Fatalf("%d tasks in summary.json, %d here", len(summary), len(LongBenchTasks()))
	}
	for _, task := range LongBenchTasks() {
		want := summary[task]
		var scores []float64
		buckets := map[string][]float64{}
		for i, r := range goldenRows(t, filepath.Join(dir, task+".jsonl")) {
			got, err := LongBench(task, r.Row)
			if err != nil || math.Abs(got-r.Score) > 1e-9 {
				t.Errorf("%s row %d (%s): %v, want %v (%v)\npred %q", task, i, r.Name, got, r.Score, err, r.Pred)
			}
			scores = append(scores, got)
			buckets[Bucket(r.Length)] = append(buckets[Bucket(r.Length)], got)
		}
		if name, _ := MetricName(task); name != want.Metric {
			t.Errorf("%s: metric %s, want %s", task, name, want.Metric)
		}
		if got := Percent(scores); len(scores) != want.N || got != want.Score {
			t.Errorf("%s: mean %v over %d, want %v over %d", task, got, len(scores), want.Score, want.N)
		}
		for _, b := range Buckets {
			if w := want.ScoreE[b]; (w == nil) != (len(buckets[b]) == 0) || w != nil && Percent(buckets[b]) != *w {
				t.Errorf("%s %s: %v, want %v", task, b, buckets[b], w)
			}
		}
	}
}

func TestTaskNames(t *testing.T) {
	if _, err := LongBench("nope", Row{}); !errors.Is(err, ErrTask) {
		t.Errorf("unknown task: %v", err)
	}
	if _, err := LongBench("trec", Row{Pred: "x", Answers: []string{"x"}}); !errors.Is(err, ErrRow) {
		t.Errorf("trec without classes: %v", err)
	}
	if _, err := LongBench("passage_retrieval_en", Row{Pred: "1", Answers: []string{"one"}}); !errors.Is(err, ErrRow) {
		t.Errorf("retrieval without a number: %v", err)
	}
	if got, err := LongBench("qasper_e", Row{Pred: "the cat", Answers: []string{"Cat!"}}); got != 1 || err != nil {
		t.Errorf("LongBench-E: %v %v", got, err)
	}
}
