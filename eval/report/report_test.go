package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/run"
)

// makeRun writes a run folder: scores by policy, task and sample.
func makeRun(t *testing.T, suite string, policies []string, tasks []string, n int, score func(policy, task string, i int) float64, labels func(i int) map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "my-run")
	o := run.Options{Suite: suite, Policies: policies, Model: eval.Model{Name: "dir/m.gguf"}, Version: "v1", Settings: map[string]any{"limit": n}}
	f, err := run.Open(dir, o, run.Machine{CPU: "cpu", Cores: 2, Started: "2026-11-23T10:00:00Z", Command: []string{"infer", "eval", "--tasks", "a b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := fixed{tasks: tasks, n: n}
	tr := run.NewTracker(f, s, s.samples(), nil)
	for _, x := range s.samples() {
		for k, p := range policies {
			var i int
			fmt.Sscan(x.ID, &i)
			v := score(p, x.Task, i)
			out := eval.Outcome{Task: x.Task, ID: x.ID, Policy: p, Score: &v, TTFT: float64(100 * (k + 1)), ITL: 5, KVPeak: map[string]int64{"host": 9 << 20}, KVHeld: map[string]int64{"host": int64(1+k) << 20}}
			if labels != nil {
				out.Labels = labels(i)
			}
			if math.IsNaN(v) {
				out = eval.Failed(x, p, errors.New("no"))
			}
			if err := tr.Add(out); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := tr.Finish(); err != nil {
		t.Fatal(err)
	}
	return dir
}

type fixed struct {
	eval.Suite
	tasks []string
	n     int
}

func (s fixed) Metric(string) eval.Metric { return eval.Metric{Name: "f1", Kind: eval.Percent} }
func (s fixed) samples() []eval.Sample {
	var out []eval.Sample
	for _, t := range s.tasks {
		for i := range s.n {
			out = append(out, eval.Sample{Task: t, ID: fmt.Sprint(i)})
		}
	}
	return out
}

func load(t *testing.T, dirs ...string) *Comparison {
	t.Helper()
	runs, err := Load(dirs)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(runs, Full)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFront(t *testing.T) {
	costs, scores, none := []float64{3, 1, 2, 2, 4}, []float64{9, 5, 5, 7, 8}, make([]float64, 5)
	if got := front(costs, scores, none, false); !slices.Equal(got, []int{1, 3, 0}) {
		t.Errorf("more is better: %v", got)
	}
	if got := front(costs, scores, none, true); !slices.Equal(got, []int{1}) {
		t.Errorf("less is better: %v", got)
	}
	if got := front([]float64{1, 1}, []float64{2, 2}, none, false); len(got) != 1 {
		t.Errorf("equal points: %v", got)
	}
	// 7 is 2 better than 5, with an error of 1.96·√2 = 2.8 in the difference: noise. 9 is 4 better: no noise.
	if got := front(costs, scores, []float64{1, 1, 1, 1, 1}, false); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("with errors: %v", got)
	}
}

// A policy that loses exactly 10 points on every sample has that difference with no uncertainty, however much samples
// vary: the bootstrap is paired. Failures count 0.
func TestPairedBootstrap(t *testing.T) {
	dir := makeRun(t, "longbench", []string{"full", "x:budget=0.5", "fails"}, []string{"a", "b"}, 8, func(p, task string, i int) float64 {
		v := 0.1 + 0.1*float64(i)
		switch {
		case p == "x:budget=0.5":
			v -= 0.1
		case p == "fails" && i == 0:
			v = math.NaN()
		}
		return v
	}, nil)
	g := load(t, dir).Groups[0]
	if g.Series[0].Diff != nil {
		t.Error("full is compared with itself")
	}
	d := g.Series[1].Diff
	if d == nil || math.Abs(d.Diff+10) > 1e-9 || math.Abs(d.Low+10) > 1e-9 || math.Abs(d.High+10) > 1e-9 || d.Pairs != 16 {
		t.Errorf("%+v", d)
	}
	d = g.Series[2].Diff // -10 on one of eight samples a task
	if math.Abs(d.Diff+10.0/8) > 1e-9 || d.Low >= d.Diff || d.High < d.Diff || d.High > 0 || g.Series[2].Failed != 2 {
		t.Errorf("%+v", d)
	}
	if again := load(t, dir).Groups[0].Series[2].Diff; *again != *d {
		t.Error("the bootstrap is not the same at a second call")
	}
}

// TestAgainst measures against another policy than full, and further measures too.
func TestAgainst(t *testing.T) {
	dir := makeRun(t, "longbench", []string{"full", "x", "y:budget=0.5"}, []string{"a"}, 8, func(p, _ string, i int) float64 {
		return 0.1*float64(i) + map[string]float64{"full": 0.3, "x": 0.1, "y:budget=0.5": 0.2}[p]
	}, nil)
	runs, err := Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	for i := range runs[0].Outcomes { // kl is 0.01 a number of the sample, and twice that under y
		o := &runs[0].Outcomes[i]
		var n float64
		fmt.Sscan(o.ID, &n)
		o.Values = map[string]float64{"kl": 0.01 * n}
		if o.Policy == "y:budget=0.5" {
			o.Values["kl"] *= 2
		}
	}
	for i := range runs[0].Results.Tasks {
		runs[0].Results.Tasks[i].Values = map[string]float64{"kl": 0.035}
	}
	c, err := Compare(runs, "x")
	if err != nil {
		t.Fatal(err)
	}
	s := c.Groups[0].Series
	for i, want := range []float64{20, 0, 10} {
		if d := s[i].Diff; want == 0 && d != nil || want != 0 && (d == nil || math.Abs(d.Diff-want) > 1e-9) {
			t.Errorf("%s against x: %+v, want %v", s[i].Policy, d, want)
		}
	}
	if d := s[2].ValueDiffs["kl"]; d == nil || math.Abs(d.Diff-0.035) > 1e-9 || d.Low >= d.Diff || d.High <= d.Diff || d.Low < 0 || d.Pairs != 8 {
		t.Errorf("kl: %+v", d)
	}
	var text bytes.Buffer
	if err := c.WriteText(&text); err != nil || !strings.Contains(text.String(), "against x (95 %)") || !strings.Contains(text.String(), "+0.0350 (") {
		t.Errorf("%v in\n%s", err, text.String())
	}
	if _, err := Compare(runs, "z"); !errors.Is(err, ErrNothing) {
		t.Errorf("against a policy that was not run: %v", err)
	}
}

// With one sample a task the interval comes from the spread over tasks; fewer than eight pairs have none.
func TestFewPairs(t *testing.T) {
	tasks := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	dir := makeRun(t, "longbench", []string{"full", "x"}, tasks, 1, func(p, task string, _ int) float64 {
		if p == "full" {
			return 0.4
		}
		return 0.1 * float64(task[0]-'a')
	}, nil)
	s := load(t, dir).Groups[0].Series[1]
	if d := s.Diff; d == nil || math.Abs(d.Diff+5) > 1e-9 || d.Low >= d.Diff || d.High <= d.Diff || s.StdErr == 0 || d.Pairs != 8 {
		t.Errorf("%+v, error %v", d, s.StdErr)
	}
	few := load(t, makeRun(t, "longbench", []string{"full", "x"}, tasks[:7], 1, func(string, string, int) float64 { return 0.4 }, nil)).Groups[0]
	if few.Series[1].Diff != nil || len(few.Notes) != 1 || !strings.Contains(few.Notes[0], "7 samples with equal prompts") {
		t.Errorf("seven pairs: %+v, notes %q", few.Series[1].Diff, few.Notes)
	}
}

// prompts gives outcomes the hashes and lengths of prompts.
func prompts(r *Run, hash func(o eval.Outcome) string, tokens int) {
	for i := range r.Outcomes {
		r.Outcomes[i].PromptHash, r.Outcomes[i].Prompt = hash(r.Outcomes[i]), tokens
	}
}

func twoRuns(t *testing.T) []Run {
	t.Helper()
	score := func(p, _ string, i int) float64 { return map[string]float64{"full": 0.9, "x": 0.1}[p] }
	runs, err := Load([]string{makeRun(t, "longbench", []string{"full"}, []string{"a"}, 10, score, nil), makeRun(t, "longbench", []string{"x"}, []string{"a"}, 10, score, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// Only samples with equal prompts are compared: by the prompts' hashes, or in runs without them by what is known of a prompt.
func TestOnlyEqualPromptsArePaired(t *testing.T) {
	byID := func(o eval.Outcome) string { return "h" + o.ID }
	for name, c := range map[string]struct {
		hash   func(o eval.Outcome) string // of x; full has byID
		tokens int                         // of x; full has 100
		pairs  int
		note   string
	}{
		"equal":          {byID, 100, 10, ""},
		"all others":     {func(eval.Outcome) string { return "other" }, 100, 0, "10 of its samples have another prompt"},
		"one other":      {func(o eval.Outcome) string { return strings.Replace(byID(o), "h3", "other", 1) }, 100, 9, "1 of its samples have another prompt"},
		"older run":      {func(eval.Outcome) string { return "" }, 100, 10, "10 pairs have no hash of the prompt"},
		"older, longer":  {func(eval.Outcome) string { return "" }, 200, 0, "10 of its samples have another prompt"},
		"equal, shorter": {byID, 50, 10, ""}, // the hash decides
	} {
		runs := twoRuns(t)
		prompts(&runs[0], byID, 100)
		prompts(&runs[1], c.hash, c.tokens)
		cmp, err := Compare(runs, Full)
		if err != nil || len(cmp.Groups) != 1 {
			t.Fatalf("%s: %v, %d groups", name, err, len(cmp.Groups))
		}
		g := cmp.Groups[0]
		if d := g.Series[1].Diff; c.pairs == 0 && d != nil || c.pairs > 0 && (d == nil || d.Pairs != c.pairs || math.Abs(d.Diff+80) > 1e-9) {
			t.Errorf("%s: %+v", name, d)
		}
		if notes := strings.Join(g.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
}

// Runs of one suite with different settings or seeds are shown apart, under the settings that differ; models of one name and
// other weights are not compared.
func TestSettingsAndModelsApart(t *testing.T) {
	runs := twoRuns(t)
	runs[1].Results.Options.Settings = map[string]any{"limit": 2, "kl": true}
	c, err := Compare(runs, Full)
	if err != nil || len(c.Groups) != 2 || c.Groups[0].Apart != "limit=10" || c.Groups[1].Apart != "limit=2" || c.Groups[1].Series[0].Diff != nil {
		t.Fatalf("%v %+v", err, c)
	}
	for name, write := range map[string]func(w io.Writer) error{"text": c.WriteText, "markdown": c.WriteMarkdown, "page": func(w io.Writer) error { return c.WriteHTML(w, "t") }} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"different settings: shown apart", "longbench (limit=2)", "no series of full"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, b.String())
			}
		}
	}
	runs = twoRuns(t)
	runs[1].Results.Options.Settings = map[string]any{"limit": 10, "kl": true} // measured beside the score
	if c, err = Compare(runs, Full); err != nil || len(c.Groups) != 1 || c.Groups[0].Series[1].Diff == nil {
		t.Errorf("kl alone tells groups apart: %v", err)
	}
	runs[1].Results.Options.Seed = 7
	if c, err = Compare(runs, Full); err != nil || len(c.Groups) != 2 || c.Groups[1].Apart != "seed=7" {
		t.Errorf("seeds: %v", err)
	}
	runs = twoRuns(t)
	runs[1].Results.Options.Model.Fingerprint = "0123456789abcdef"
	if c, err = Compare(runs, Full); err != nil || c.Groups[0].Series[1].Diff != nil || c.Groups[0].Series[1].Label != "m.gguf@01234567 · x" {
		t.Errorf("other weights: %v %+v", err, c.Groups[0].Series[1])
	}
}

// The interval covers a true difference of zero about 95 times in 100.
func TestBootstrapCoverage(t *testing.T) {
	hit := 0
	const trials = 60
	for k := range trials {
		var a, b []eval.Outcome
		for i := range 40 {
			x := math.Mod(float64(k*7919+i*104729)*0.6180339887, 1)
			y := math.Mod(float64(k*1299709+i*15485863)*0.7548776662, 1)
			a = append(a, eval.Outcome{Task: "t", ID: fmt.Sprint(i), Score: &x})
			b = append(b, eval.Outcome{Task: "t", ID: fmt.Sprint(i), Score: &y})
		}
		if d, _ := difference(a, b, eval.Metric{Kind: eval.Percent}); d.Low <= 0 && 0 <= d.High {
			hit++
		}
	}
	if hit < trials*85/100 {
		t.Errorf("%d of %d intervals cover the truth", hit, trials)
	}
}

func TestLabelsTellSeriesApart(t *testing.T) {
	half := func(string, string, int) float64 { return 0.5 }
	a := makeRun(t, "ruler", []string{"full"}, []string{"a"}, 2, half, nil)
	b := makeRun(t, "ruler", []string{"full", "h2o"}, []string{"a"}, 2, half, nil)
	c := load(t, a, b)
	if len(c.Groups) != 1 || c.Groups[0].Series[0].Label != "full · my-run" || c.Groups[0].Series[2].Label != "h2o" || c.Groups[0].Series[2].Model != "m.gguf" {
		t.Errorf("%+v", c.Groups[0].Series)
	}
	if s := c.Groups[0].Series[0]; s.Score == nil || *s.Score != 50 {
		t.Error("the only task's score is the series' score")
	}
}

func TestTextAndJSON(t *testing.T) {
	dir := makeRun(t, "longbench", []string{"full", "x"}, []string{"qa", "sum"}, 4, func(p, _ string, i int) float64 { return float64(i % 2) }, nil)
	c := load(t, dir)
	var text, raw bytes.Buffer
	if err := c.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"longbench: mean of tasks, %", "50.00", "1MiB", "+0.00 (+0.00 … +0.00)", "scores by task", "sum"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if err := c.WriteJSON(&raw); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Groups []struct {
			Series []struct {
				Policy string
				Score  float64
				Tasks  map[string]struct{ Score float64 }
			}
		}
	}
	if err := json.Unmarshal(raw.Bytes(), &back); err != nil || back.Groups[0].Series[1].Tasks["qa"].Score != 50 {
		t.Errorf("%v %s", err, raw.String()[:200])
	}
}

// The page is well-formed, needs nothing from elsewhere, runs no script, and escapes what runs contain.
func TestPage(t *testing.T) {
	hostile := `x:<script>alert(1)</script>"&`
	dirs := []string{
		makeRun(t, "longbench", []string{"full", hostile}, []string{"qa", "<b>"}, 3, func(p, _ string, i int) float64 { return float64(i%2) * 0.7 }, nil),
		makeRun(t, "niah", []string{"full", "h2o:budget=0.5"}, []string{"niah"}, 6, func(p, _ string, i int) float64 { return float64(i % 2) },
			func(i int) map[string]string {
				return map[string]string{"depth": fmt.Sprint(i % 3 * 50), "context": fmt.Sprint(1024 << (i % 2))}
			}),
	}
	var b bytes.Buffer
	if err := load(t, dirs...).WriteHTML(&b, "Title & more"); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "http://", "https://", "NaN", "Inf", "%!", "ZgotmplZ", "src=", "@import", "url("} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, want := range []string{"Pareto fronts", "Needle in a haystack", "Scores by policy and task", "What was run", "prefers-color-scheme: dark", "infer eval --tasks &#39;a b&#39;", "class=\"h10\"", "viewport"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	body := page[strings.Index(page, "<body>"):strings.Index(page, "</html>")]
	d := xml.NewDecoder(strings.NewReader(body))
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}

func TestScale(t *testing.T) {
	for _, x := range [][2]float64{{0, 1}, {0, 97}, {3.2, 3.4}, {5, 5}, {0, 0}, {-2, 3}, {1e-6, 3e-6}, {0, 1e9}} {
		s := niceScale(x[0], x[1], 0, 100, 5)
		ticks := s.ticks()
		if s.min > x[0] || s.max < x[1] || len(ticks) < 2 || len(ticks) > 12 || math.Abs(ticks[len(ticks)-1].At-100) > 1e-6 {
			t.Errorf("%v: %+v %v", x, s, ticks)
		}
		for i := 1; i < len(ticks); i++ {
			if ticks[i].Label == ticks[i-1].Label {
				t.Errorf("%v: equal labels %v", x, ticks)
			}
		}
	}
	seen := map[string]bool{}
	for i := range shapes {
		if p := marker(i, 0, 0, 5); seen[p] {
			t.Errorf("shape %d repeats another", i)
		} else {
			seen[p] = true
		}
	}
}

func TestUnfinishedRun(t *testing.T) {
	if _, err := Load([]string{t.TempDir()}); !errors.Is(err, run.ErrFolder) || !strings.Contains(err.Error(), "infer eval") {
		t.Errorf("%v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "results.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load([]string{dir}); !errors.Is(err, run.ErrFolder) {
		t.Errorf("%v", err)
	}
}

// A run that was stopped is compared as far as it went, which is said.
func TestStoppedRun(t *testing.T) {
	runs := twoRuns(t)
	runs[1].Results.Complete, runs[1].Outcomes = false, runs[1].Outcomes[:9]
	c, err := Compare(runs, Full)
	if err != nil || c.Groups[0].Series[1].Diff == nil || c.Groups[0].Series[1].Diff.Pairs != 9 {
		t.Fatalf("%v %+v", err, c)
	}
	notes := strings.Join(c.Groups[0].Notes, "\n")
	for _, want := range []string{"is not complete", "the scores are of 9 samples and of 10 in 1 (full", "of the 9 that both have"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in %q", want, notes)
		}
	}
}
