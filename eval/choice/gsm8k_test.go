package choice

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/fakes"
	"terrace/eval/metrics"
)

// gsm8kCase is one run of the harness (testdata/gsm8k/generate.py).
type gsm8kCase struct {
	Train, Shots int
	Prompts      []string // of the first questions
	Rows         []struct {
		Reply, Cut       string
		Strict, Flexible float64
		StrictText       string `json:"strict_text"`
		FlexibleText     string `json:"flexible_text"`
	}
	Results map[string]float64
}

func gsm8kGolden(t *testing.T) (cases []gsm8kCase) {
	t.Helper()
	raw, err := os.ReadFile("testdata/gsm8k/golden.json")
	if err == nil {
		err = json.Unmarshal(raw, &cases)
	}
	if err != nil || len(cases) < 4 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	return cases
}

// gsm8kFolder has the first rows of the training file, and the test file.
func gsm8kFolder(t *testing.T, rows int) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"train.jsonl", "test.jsonl"} {
		raw, err := os.ReadFile(filepath.Join("testdata", "gsm8k", name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(raw), "\n")
		if name == "train.jsonl" {
			lines = lines[:rows]
		}
		write(t, filepath.Join(dir, "gsm8k", "main", name), strings.Join(lines, ""))
	}
	return dir
}

// TestGSM8KPrompts: the harness's prompts to the letter, its draw of examples included.
func TestGSM8KPrompts(t *testing.T) {
	for _, c := range gsm8kGolden(t) {
		for _, limit := range []int{0, 2} { // a limit leaves the first questions as they are
			s, err := New(Options{Data: gsm8kFolder(t, c.Train), Tasks: []string{"gsm8k"}, Shots: c.Shots, Limit: limit, Seed: 7})
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range s.samples[:min(len(s.samples), len(c.Prompts))] {
				if got := x.Data.(*question).prompt; got != c.Prompts[i] {
					t.Errorf("%d rows, %d examples, question %d:\n%q\nwant\n%q", c.Train, c.Shots, i, got, c.Prompts[i])
				}
			}
			raw, _ := json.Marshal(s.Options())
			if own := strings.Contains(string(raw), `"task_shots":{"gsm8k":5}`); own != (c.Shots == TaskShots) {
				t.Errorf("options %s", raw)
			}
		}
	}
}

// TestGSM8KScores: what the harness extracts and how it scores it, through the suite: answers end at stop texts.
func TestGSM8KScores(t *testing.T) {
	c := gsm8kGolden(t)[0]
	s, err := New(Options{Data: gsm8kFolder(t, c.Train), Shots: TaskShots})
	if err != nil || len(s.samples) != len(c.Rows) {
		t.Fatalf("%d questions, %d replies: %v", len(s.samples), len(c.Rows), err)
	}
	at, sum := 0, map[string]float64{}
	r := &fakes.Runner{Answer: func(string, string) string { return c.Rows[at].Reply }}
	for ; at < len(c.Rows); at++ {
		want := c.Rows[at]
		var o eval.Outcome
		if err := s.Evaluate(context.Background(), r, s.samples[at], []string{"full"}, func(x eval.Outcome) error { o = x; return nil }); err != nil {
			t.Fatal(err)
		}
		flexible := o.Values["exact_match,flexible-extract"]
		if o.Pred != want.Cut || *o.Score != want.Strict || flexible != want.Flexible {
			t.Errorf("%q: read as %q, scores %v and %v; want %q, %v and %v", want.Reply, o.Pred, *o.Score, flexible, want.Cut, want.Strict, want.Flexible)
		}
		var row struct {
			Answer   string
			Strict   string `json:"strict_match"`
			Flexible string `json:"flexible_extract"`
		}
		if err := json.Unmarshal(o.Row, &row); err != nil || row.Strict != want.StrictText || row.Flexible != want.FlexibleText {
			t.Errorf("%q: extracted %+v, %v; want %q and %q", want.Reply, row, err, want.StrictText, want.FlexibleText)
		}
		sum[s.Metric("gsm8k").Name] += *o.Score
		sum["exact_match,flexible-extract"] += flexible
	}
	for name, mean := range c.Results {
		if got := sum[name] / float64(len(c.Rows)); math.Abs(got-mean) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, mean)
		}
	}
	if len(c.Results) != 2 {
		t.Errorf("the harness's results: %v", c.Results)
	}
}

// TestGSM8KRefusals: no file of examples, and fewer of them than are asked for.
func TestGSM8KRefusals(t *testing.T) {
	dir := gsm8kFolder(t, 4)
	if _, err := New(Options{Data: dir, Tasks: []string{"gsm8k"}, Shots: TaskShots}); !errors.Is(err, eval.ErrOption) || !strings.Contains(err.Error(), "4 rows") {
		t.Errorf("5 examples of 4 rows: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "gsm8k", "main", "train.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Data: dir, Tasks: []string{"gsm8k"}, Shots: TaskShots}); !errors.Is(err, eval.ErrOption) || !strings.Contains(err.Error(), "train*") {
		t.Errorf("no examples: %v", err)
	}
	if s, err := New(Options{Data: dir, Tasks: []string{"gsm8k"}}); err != nil || len(s.samples) == 0 {
		t.Errorf("no examples asked for: %v", err)
	}
	if strict, flexible := metrics.GSM8K("none", "#### 1"); strict.Right || flexible.Right || strict.Text != "[invalid]" {
		t.Errorf("%+v %+v", strict, flexible)
	}
}
