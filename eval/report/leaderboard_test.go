package report

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"terrace/eval"
	"terrace/eval/run"
)

// setting is a policy of a board's run: MiB held and read, and the score of each sample (NaN: it failed, below 0: it is missing).
type setting struct {
	policy     string
	held, read float64
	score      func(task string, i int) float64
}

// boardRun writes a run of RULER with n samples a task, each of so many tokens.
func boardRun(t *testing.T, name string, tokens, n int, tasks []string, settings ...setting) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	o := run.Options{Suite: "ruler", Model: eval.Model{Name: "dir/m.gguf", Fingerprint: "0123456789"}, Version: "v1", Settings: map[string]any{"lengths": []int{tokens}}}
	for _, s := range settings {
		o.Policies = append(o.Policies, s.policy)
	}
	f, err := run.Open(dir, o, run.Machine{CPU: "cpu", Cores: 2, Started: "2026-11-28T10:00:00Z", Command: []string{"infer", "eval", "--suite", "ruler"}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	suite := fixed{tasks: tasks, n: n}
	tr := run.NewTracker(f, suite, suite.samples(), nil)
	for _, x := range suite.samples() {
		var i int
		fmt.Sscan(x.ID, &i)
		for _, s := range settings {
			v := s.score(x.Task, i)
			out := eval.Outcome{Task: x.Task, ID: x.ID, Policy: s.policy, Score: &v, Labels: map[string]string{"context": fmt.Sprint(tokens)}, KVRead: s.read * (1 << 20),
				KVPeak: map[string]int64{"host": 9 << 20}, KVHeld: map[string]int64{"host": int64(s.held * (1 << 20))}}
			if v < 0 {
				continue
			}
			if math.IsNaN(v) {
				kept := out
				out = eval.Failed(x, s.policy, errors.New("no"))
				out.KVPeak, out.KVHeld, out.Labels = kept.KVPeak, kept.KVHeld, kept.Labels
			}
			out.PromptHash = x.Task + x.ID
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

// lost are scores of 1 in which the samples below some count of a task are wrong.
func lost(wrong map[string]int) func(string, int) float64 {
	return func(task string, i int) float64 {
		if i < wrong[task] {
			return 0
		}
		return 1
	}
}

// boardRuns are fixed: at 4,096 tokens a method around every point, one that reads too much for the first, one with samples missing, one that
// failed once; at 16,384 tokens one method at one setting.
func boardRuns(t *testing.T) []Run {
	t.Helper()
	all := lost(nil)
	dirs := []string{
		boardRun(t, "m-4k", 4096, 5, []string{"a", "b"}, setting{"full", 8, 8, lost(map[string]int{"b": 1})},
			setting{"snapkv:budget=5%", 0.5, 0.4, lost(map[string]int{"a": 5, "b": 5})}, setting{"snapkv:budget=10%", 1, 0.84, lost(map[string]int{"a": 5, "b": 3})},
			setting{"snapkv:budget=25%", 2.1, 2.04, lost(map[string]int{"a": 2, "b": 2})}, setting{"snapkv:budget=50%", 4.1, 4.02, lost(map[string]int{"a": 1, "b": 1})},
			setting{"topk:score=int4,budget=10%", 9, 1.8, lost(map[string]int{"b": 1})}, setting{"topk:score=int4,budget=50%", 9, 5, lost(map[string]int{"b": 1})},
			setting{"knorm:budget=5%", 0.5, 0.4, all}, setting{"knorm:budget=50%", 4, 4, func(task string, i int) float64 {
				if task == "b" && i == 4 {
					return -1
				}
				return all(task, i)
			}},
			setting{"<b>&:budget=25%", 2, 2, func(task string, i int) float64 {
				if i == 0 {
					return math.NaN()
				}
				return 0
			}}),
		boardRun(t, "m-16k", 16384, 5, []string{"a", "b"}, setting{"full", 32, 32, all}, setting{"snapkv:budget=25%", 8, 8, lost(map[string]int{"a": 2})}),
	}
	runs, err := Load(dirs)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

var boardPoints = []BytesPoint{{Read: true, Share: 0.1}, {Read: true, Share: 0.25}, {Read: true, Share: 0.5}}

// TestLeaderboard is the page and the CSV file of fixed runs, to the byte.
func TestLeaderboard(t *testing.T) {
	l, err := NewLeaderboard(boardRuns(t), Full, boardPoints)
	if err != nil {
		t.Fatal(err)
	}
	datadriven.RunTest(t, "testdata/leaderboard", func(t *testing.T, d *datadriven.TestData) string {
		var b bytes.Buffer
		if d.Cmd == "csv" {
			if err := l.WriteCSV(&b); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
		if err := l.WriteHTML(&b, "Title & more"); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		for _, bad := range []string{"http://", "https://", "NaN", "Inf", "%!", "ZgotmplZ", "src=", "@import", "url("} {
			if strings.Contains(page, bad) {
				t.Errorf("the page has %q", bad)
			}
		}
		return page[strings.Index(page, "<body>"):]
	})
}

// cell is a method's at a point.
func (b *Board) cell(t *testing.T, method string, point int) BoardCell {
	t.Helper()
	for _, r := range b.Rows {
		if r.Method == method {
			return r.Cells[point]
		}
	}
	t.Fatalf("no method %s", method)
	return BoardCell{}
}

// binomial is the probability of k in n.
func binomial(n, k int, p float64) float64 {
	ways := 1.0
	for i := range k {
		ways *= float64(n-i) / float64(i+1)
	}
	return ways * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
}

// TestLeaderboardArithmetic checks means, pairing, interpolation and intervals against arithmetic of their own: where samples are lost or kept,
// what a bootstrap within tasks draws is a sum of binomials.
func TestLeaderboardArithmetic(t *testing.T) {
	without := func(task string, i int) float64 { // full is wrong in a/5
		if task == "a" && i == 5 {
			return 0
		}
		return 1
	}
	dir := boardRun(t, "r", 1024, 6, []string{"a", "b"}, setting{"full", 8, 8, without},
		setting{"snapkv:budget=25%", 2, 2, func(task string, i int) float64 {
			return min(without(task, i), lost(map[string]int{"a": 1, "b": 4})(task, i))
		}},
		setting{"knorm:budget=25%", 2, 2, func(task string, i int) float64 { // wrong in a/0, a/5 is missing
			if task == "a" && i == 5 {
				return -1
			}
			return lost(map[string]int{"a": 1})(task, i)
		}},
		setting{"tova:budget=25%", 2, 2, func(task string, i int) float64 {
			if task == "b" && i == 0 {
				return math.NaN()
			}
			return without(task, i)
		}},
		setting{"lagkv:budget=10%", 1, 1, func(string, int) float64 { return 0 }}, setting{"lagkv:budget=40%", 5, 5, without})
	runs, err := Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLeaderboard(runs, Full, []BytesPoint{{Read: true, Share: 0.25}})
	if err != nil || len(l.Boards) != 1 {
		t.Fatal(err)
	}
	b := l.Boards[0]
	for _, want := range []struct {
		method      string
		score, diff float64 // percent
		n, failed   int
		read        float64 // MiB
	}{
		{"snapkv", (4.0/6 + 2.0/6) / 2, -(1.0/6 + 4.0/6) / 2, 12, 0, 2}, {"knorm", (4.0/5 + 1) / 2, -(1.0 / 5) / 2, 11, 0, 2},
		{"tova", (5.0/6 + 5.0/6) / 2, -(1.0 / 6) / 2, 12, 1, 2}, {"lagkv", 0.25 * (5.0/6 + 1) / 2, -0.75 * (5.0/6 + 1) / 2, 12, 0, 2},
	} {
		c := b.cell(t, want.method, 0)
		if math.Abs(c.Score.Mean-100*want.score) > 1e-9 || c.Diff == nil || math.Abs(c.Diff.Diff-100*want.diff) > 1e-9 {
			t.Errorf("%s: %v, %v, want %v, %v", want.method, c.Score, c.Diff, 100*want.score, 100*want.diff)
		}
		if c.N != want.n || c.Of != 12 || c.Short() != (want.n < 12) || c.Failed != want.failed || math.Abs(c.Read-want.read*(1<<20)) > 1 {
			t.Errorf("%s: %+v", want.method, c)
		}
	}
	if c := b.Full; math.Abs(c.Score.Mean-100*(5.0/6+1)/2) > 1e-9 || c.Diff != nil || c.N != 12 || c.Short() {
		t.Errorf("full: %+v", c)
	}
	// Of snapkv's differences 1 of 6 and 4 of 6 are −1, of its scores 4 of 6 and 2 of 6 are 1.
	c := b.cell(t, "snapkv", 0)
	if low, high := drawn(t, 1.0/6, 4.0/6); math.Abs(c.Diff.Low+high) > 1e-9 || math.Abs(c.Diff.High+low) > 1e-9 {
		t.Errorf("interval %v, want %v … %v", c.Diff, -high, -low)
	}
	if low, high := drawn(t, 4.0/6, 2.0/6); math.Abs(c.Score.Low-low) > 1e-9 || math.Abs(c.Score.High-high) > 1e-9 {
		t.Errorf("score %v, want %v … %v", c.Score, low, high)
	}
	if c.Verdict() != "worse" || b.cell(t, "tova", 0).Verdict() != "" {
		t.Errorf("%s, %s", c.Verdict(), b.cell(t, "tova", 0).Verdict())
	}
}

// drawn is what 95 % of all bootstrap draws from two tasks of six samples give, in percent: A + B twelfths, A of Bin(6, p), B of Bin(6, q).
func drawn(t *testing.T, p, q float64) (low, high float64) {
	t.Helper()
	sum := make([]float64, 13)
	for a := range 7 {
		for b := range 7 {
			sum[a+b] += binomial(6, a, p) * binomial(6, b, q)
		}
	}
	at := func(share float64) float64 {
		below := 0.0
		for k, p := range sum {
			if below += p; math.Abs(below-share) < 0.007 { // two errors of 2,000 draws
				t.Fatalf("%v is too near to the step at %d", share, k)
			} else if below > share {
				return 100 * float64(k) / 12
			}
		}
		return 100
	}
	return at(0.025), at(0.975)
}

// TestLeaderboardRefuses: what makes no board is one line that names it.
func TestLeaderboardRefuses(t *testing.T) {
	both := []string{"m-4k", "m-16k"}
	for name, c := range map[string]struct {
		spoil func(runs []Run) []Run
		want  string
	}{
		"lengths": {func(runs []Run) []Run {
			runs[0].Outcomes[3].Labels = map[string]string{"context": "512"}
			return runs
		}, "run m-4k has samples of 4096 and of 512 tokens"},
		"twice": {func(runs []Run) []Run { return append(runs, runs[0]) }, "full of m.gguf is there twice, in runs m-4k and m-4k"},
		"other words": {func(runs []Run) []Run {
			again := runs[0]
			again.Results = &run.Results{Options: again.Results.Options, Policies: []run.PolicyResult{{Policy: "snap-kv:budget=0.05"}}}
			return append(runs, again)
		}, "snap-kv:budget=0.05 of m.gguf is there twice"},
		"perplexity": {func(runs []Run) []Run {
			for i := range runs[1].Results.Tasks {
				runs[1].Results.Tasks[i].Metric = eval.Metric{Name: "ppl", Kind: eval.Perplexity}
			}
			return runs
		}, "ruler of m.gguf is scored in ppl"},
		"no full": {func(runs []Run) []Run {
			runs[1].Results.Policies = runs[1].Results.Policies[1:]
			return runs
		}, "ruler of m.gguf has no series of full with these settings (run m-16k)"},
		"no bytes": {func(runs []Run) []Run {
			runs[1].Results.Policies[0].KVRead = 0
			return runs
		}, "run m-16k does not say how many bytes full holds and reads"},
	} {
		runs := boardRuns(t)
		if got := []string{runs[0].Name, runs[1].Name}; !slices.Equal(got, both) {
			t.Fatal(got)
		}
		_, err := NewLeaderboard(c.spoil(runs), Full, boardPoints)
		if !errors.Is(err, ErrNothing) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewLeaderboard(boardRuns(t), "oracle", boardPoints); !errors.Is(err, ErrNothing) {
		t.Error(err)
	}
}

// TestLeaderboardModels: models have boards of their own, also two of one name.
func TestLeaderboardModels(t *testing.T) {
	runs := boardRuns(t)
	runs[1].Results.Options.Model.Fingerprint = "abcdefghijkl"
	l, err := NewLeaderboard(runs, Full, boardPoints)
	if err != nil || len(l.Boards) != 2 || l.Boards[0].Title != "m.gguf@01234567 · ruler, 4096 tokens" || l.Boards[1].Title != "m.gguf@abcdefgh · ruler, 16384 tokens" {
		t.Errorf("%v %+v", err, l)
	}
}

// TestLeaderboardFewSamples: a board says where a task has so few samples that its intervals are too narrow.
func TestLeaderboardFewSamples(t *testing.T) {
	for n, want := range map[int]bool{4: true, 5: false} {
		runs, err := Load([]string{boardRun(t, "r", 1024, n, []string{"a", "b"}, setting{"full", 8, 8, lost(nil)}, setting{"knorm:budget=25%", 2, 2, lost(nil)})})
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewLeaderboard(runs, Full, boardPoints)
		if err != nil || strings.Contains(strings.Join(l.Boards[0].Notes, "\n"), "4 samples a task") != want {
			t.Errorf("%d: %v %q", n, err, l.Boards[0].Notes)
		}
	}
}

// TestLeaderboardBrokenRuns: files of a run that were cut, changed or doubled are one line, not fewer samples.
func TestLeaderboardBrokenRuns(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(lines []string) []string
		want  string
	}{
		"broken":  {func(lines []string) []string { lines[1] = lines[1][:20]; return lines }, "samples.jsonl, line 2 is not an outcome"},
		"torn":    {func(lines []string) []string { lines[19] = lines[19][:20]; return lines }, "has 19 whole outcomes, results.json was made of 20"},
		"cut":     {func(lines []string) []string { return lines[:7] }, "has 7 whole outcomes"},
		"doubled": {func(lines []string) []string { lines[4] = lines[2]; return lines }, "a/1 under full is there twice"},
	} {
		dir := boardRun(t, "r", 1024, 5, []string{"a", "b"}, setting{"full", 8, 8, lost(nil)}, setting{"knorm:budget=25%", 2, 2, lost(nil)})
		file := filepath.Join(dir, "samples.jsonl")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := c.spoil(strings.Split(strings.TrimSpace(string(raw)), "\n"))
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load([]string{dir}); !errors.Is(err, run.ErrFolder) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLeaderboardSorts clicks a heading in a browser: by falling score at that point, then rising; what was not run stays last.
func TestLeaderboardSorts(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil && browser == "" {
			browser = path
		}
	}
	if browser == "" {
		t.Skip("no browser (chromium, google-chrome, headless-shell) is installed: sorting was not tried")
	}
	l, err := NewLeaderboard(boardRuns(t)[:1], Full, boardPoints)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := l.WriteHTML(&page, "t"); err != nil {
		t.Fatal(err)
	}
	page.WriteString(`<script>
const seen = [];
for (const i of [1, 1, 0, 2]) {
  document.querySelectorAll(".board th button")[i].click();
  seen.push([...document.querySelector(".board").tBodies[1].rows].map(r => r.cells[0].dataset.v).join(","));
}
document.title = seen.join("|") + "|" + document.querySelectorAll(".board th")[2].ariaSort;
</script>`)
	file := filepath.Join(t.TempDir(), "board.html")
	if err := os.WriteFile(file, page.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	dom, err := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+file).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, title, _ := strings.Cut(string(dom), "<title>")
	title, _, _ = strings.Cut(title, "</title>")
	want := "knorm,snapkv,topk int4,&lt;b&gt;&amp;|snapkv,knorm,topk int4,&lt;b&gt;&amp;|&lt;b&gt;&amp;,knorm,snapkv,topk int4|knorm,topk int4,snapkv,&lt;b&gt;&amp;|descending"
	if title != want {
		t.Errorf("got  %s\nwant %s", title, want)
	}
}
