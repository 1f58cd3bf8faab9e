package longbench

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/fakes"
	"terrace/eval/metrics"
	"terrace/internal/golden"
)

// Every shared row's prompt is the official template with its fields put in by plain substitution.
func TestPromptsAreOfficial(t *testing.T) {
	dir := golden.Shared(t, "data", "longbench")
	s, err := New(Options{Data: dir})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "dataset2prompt.json"))
	if err != nil {
		t.Fatal(err)
	}
	var prompts map[string]string
	if err := json.Unmarshal(raw, &prompts); err != nil {
		t.Fatal(err)
	}
	r := &fakes.Runner{NoChat: true}
	for _, x := range s.samples {
		row := x.Data.(*Row)
		before, after, _ := strings.Cut(prompts[x.Task], "{context}")
		want := strings.Replace(before, "{input}", row.Input, 1) + row.Context + strings.Replace(after, "{input}", row.Input, 1)
		ids, cut, err := s.Prompt(r, x.Task, row)
		if err != nil || cut != 0 || r.Decode(ids) != want {
			t.Fatalf("%s/%s: prompt differs from the template (%v)", x.Task, x.ID, err)
		}
	}
	if len(s.samples) < 100 {
		t.Errorf("only %d rows", len(s.samples))
	}
	if string(raw) != string(defaultPrompts) {
		t.Error("the embedded prompts differ from the data folder's")
	}
}

// testSuite has rows of two tasks in a folder of its own, so that the embedded prompts are used.
func testSuite(t *testing.T, o Options) *Suite {
	t.Helper()
	o.Data = t.TempDir()
	for _, task := range []string{"samsum", "qasper"} {
		var b strings.Builder
		for i, c := range []string{"Doc one. ", "Doc two {input} "} {
			raw, _ := json.Marshal(Row{Context: strings.Repeat(c, 30), Input: "why?", Answers: []string{"the red cat", "café <b>"}, Length: 3999 + i, Dataset: task})
			b.Write(append(raw, '\n'))
		}
		if err := os.WriteFile(filepath.Join(o.Data, task+".jsonl"), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if o.Tasks == nil {
		o.Tasks = []string{"samsum", "qasper"}
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The middle is cut to twice half the limit, in tokens, before the chat template; an odd limit loses one more.
func TestTruncation(t *testing.T) {
	for _, limit := range []int{100, 101} {
		s := testSuite(t, Options{MaxContext: limit})
		r := &fakes.Runner{}
		for _, x := range s.samples {
			row := x.Data.(*Row)
			whole, err := fill(s.src.prompts[x.Task], row)
			if err != nil {
				t.Fatal(err)
			}
			want := whole[:50] + whole[len(whole)-50:]
			ids, cut, err := s.Prompt(r, x.Task, row)
			if x.Task != "samsum" {
				want = "<user>" + want + "<assistant>"
			}
			if err != nil || r.Decode(ids) != want || cut != len(whole)-100 {
				t.Errorf("limit %d %s: %q, want %q (cut %d, %v)", limit, x.Task, r.Decode(ids), want, cut, err)
			}
		}
	}
}

func TestEvaluate(t *testing.T) {
	s := testSuite(t, Options{})
	r := &fakes.Runner{Answer: func(prompt, policy string) string {
		if policy == "full" {
			return "the red cat"
		}
		return "dog"
	}}
	samples, _ := s.Samples(context.Background(), r)
	var got []eval.Outcome
	for _, x := range samples {
		if err := s.Evaluate(context.Background(), r, x, []string{"full", "few:budget=0.5"}, func(o eval.Outcome) error { got = append(got, o); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if r.Prefills != 4 || len(got) != 8 {
		t.Fatalf("%d prefills, %d outcomes", r.Prefills, len(got))
	}
	for _, o := range got {
		want := 0.0
		if o.Policy == "full" {
			want, _ = metrics.LongBench(o.Task, metrics.Row{Pred: "the red cat", Answers: []string{"the red cat"}})
		}
		if o.Score == nil || *o.Score != want || o.TTFT <= 0 || o.KVPeak["host"] == 0 || !o.Shared {
			t.Errorf("%+v", o)
		}
	}
	if got[0].Labels["length"] != "0-4k" || got[4].Labels["length"] != "4-8k" {
		t.Errorf("buckets %v %v", got[0].Labels, got[4].Labels)
	}
	if got[0].Task != "qasper" || got[2].Task != "samsum" || got[4].Task != "qasper" {
		t.Error("tasks are not taken in turn")
	}
	files, err := s.PredictionFiles("org/m:1", got)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"pred":"dog","answers":["the red cat","café <b>"],"all_classes":null,"length":3999}` + "\n" +
		`{"pred":"dog","answers":["the red cat","café <b>"],"all_classes":null,"length":4000}` + "\n"
	if got := string(files["pred/org-m-1@few-budget=0.5/qasper.jsonl"]); got != want {
		t.Errorf("files %v\n got %s\nwant %s", len(files), got, want)
	}
	if len(files["pred/org-m-1/samsum.jsonl"]) == 0 {
		t.Error("no file for full")
	}
}

func TestBadData(t *testing.T) {
	if _, err := New(Options{Data: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, eval.ErrData) {
		t.Errorf("missing folder: %v", err)
	}
	if _, err := New(Options{Data: t.TempDir(), Tasks: []string{"nope"}}); !errors.Is(err, eval.ErrOption) {
		t.Errorf("unknown task: %v", err)
	}
	dir := t.TempDir()
	for text, what := range map[string]string{"": "no rows", "{\n": "line 1", `{"context":"x","answers":[]}` + "\n": "no answers"} {
		if err := os.WriteFile(filepath.Join(dir, "lcc.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Options{Data: dir, Tasks: []string{"lcc"}}); !errors.Is(err, eval.ErrData) || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v, want %s", text, err, what)
		}
	}
	if _, err := fill("{contxt}", &Row{}); !errors.Is(err, eval.ErrData) {
		t.Errorf("template: %v", err)
	}
	if got, _ := fill("{{a}} {input}", &Row{Input: "{context}"}); got != "{a} {context}" {
		t.Errorf("braces: %q", got)
	}
}

func TestOptionsNameTheData(t *testing.T) {
	a, b := testSuite(t, Options{}), testSuite(t, Options{Limit: 1})
	x, _ := json.Marshal(a.Options())
	y, _ := json.Marshal(b.Options())
	if string(x) == string(y) {
		t.Error("limit is not part of the options")
	}
	if !slices.Equal(a.o.Tasks, []string{"qasper", "samsum"}) {
		t.Errorf("tasks %v", a.o.Tasks)
	}
}
