package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"terrace/eval"
	"terrace/eval/fakes"
)

// echoSuite asks n questions of two tasks; sample 3 of task b fails.
type echoSuite struct{ n int }

func (s echoSuite) Name() string              { return "echo" }
func (s echoSuite) Options() any              { return map[string]any{"n": s.n} }
func (s echoSuite) Metric(string) eval.Metric { return eval.Metric{Name: "match", Kind: eval.Percent} }
func (s echoSuite) Samples(context.Context, eval.Runner) ([]eval.Sample, error) {
	var out []eval.Sample
	for _, task := range []string{"a", "b"} {
		for i := range s.n {
			out = append(out, eval.Sample{Task: task, ID: fmt.Sprint(i), Data: fmt.Sprintf("%s question %d", task, i)})
		}
	}
	return out, nil
}

func (s echoSuite) Evaluate(ctx context.Context, r eval.Runner, x eval.Sample, policies []string, emit func(eval.Outcome) error) error {
	ids, err := r.Encode(x.Data.(string))
	if err != nil {
		return err
	}
	return eval.Ask(ctx, r, x, eval.Question{IDs: ids, Gen: eval.Generate{MaxTokens: 8}, Score: func(o *eval.Outcome) error {
		if x.Task == "b" && x.ID == "3" {
			return errors.New("cannot be scored")
		}
		v := float64(o.Pred[0]%4) / 3
		o.Score, o.Labels = &v, map[string]string{"half": fmt.Sprint(o.Pred[0] % 2)}
		return nil
	}}, policies, emit)
}

func testOptions(n int) Options {
	return Options{Version: "test", Suite: "echo", Settings: map[string]any{"n": n}, Policies: []string{"full", "few", "other"},
		Model: (&fakes.Runner{}).Model(), Engine: map[string]any{"threads": 1}}
}

func runAll(t testing.TB, dir string, n int, r *fakes.Runner) (*Results, error) {
	t.Helper()
	f, err := Open(dir, testOptions(n), Machine{CPU: "fake"})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Run(context.Background(), f, echoSuite{n}, r, nil)
}

func read(t testing.TB, path ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestRunKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	r := &fakes.Runner{}
	res, err := runAll(t, dir, 5, r)
	if err != nil {
		t.Fatal(err)
	}
	if r.Prefills != 10 {
		t.Errorf("%d prefills for 10 samples: policies share one", r.Prefills)
	}
	if lines := strings.Count(read(t, dir, samplesFile), "\n"); lines != 30 || !res.Complete {
		t.Errorf("%d lines, complete %v", lines, res.Complete)
	}
	for _, task := range res.Tasks {
		wantFailed := 0
		if task.Task == "b" {
			wantFailed = 1
		}
		if task.N != 5 || task.Failed != wantFailed || task.TTFT <= 0 || task.KVPeak["host"] == 0 {
			t.Errorf("%+v", task)
		}
	}
	got, outcomes, err := Read(dir)
	if err != nil || len(outcomes) != 30 || len(got.Policies) != 3 {
		t.Errorf("read back: %v, %d outcomes", err, len(outcomes))
	}
	again := &fakes.Runner{}
	before := read(t, dir, resultsFile)
	if _, err := runAll(t, dir, 5, again); err != nil || again.Prefills != 0 || read(t, dir, resultsFile) != before {
		t.Errorf("a finished run was not taken as it is: %v, %d prefills", err, again.Prefills)
	}
}

func TestChangedOptionsAreRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := runAll(t, dir, 2, &fakes.Runner{}); err != nil {
		t.Fatal(err)
	}
	before := read(t, dir, samplesFile)
	for field, change := range map[string]func(o *Options){
		"settings.n":     func(o *Options) { o.Settings = map[string]any{"n": 3} },
		"policies[1]":    func(o *Options) { o.Policies = []string{"full"} },
		"model.name":     func(o *Options) { o.Model.Name = "other" },
		"version":        func(o *Options) { o.Version = "next" },
		"engine.threads": func(o *Options) { o.Engine = map[string]any{} },
		"seed":           func(o *Options) { o.Seed = 7 },
		"batch":          func(o *Options) { o.Batch = 4 },
	} {
		o := testOptions(2)
		change(&o)
		_, err := Open(dir, o, Machine{})
		if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if read(t, dir, samplesFile) != before {
		t.Error("a refused run changed the folder")
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, testOptions(2), Machine{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, testOptions(2), Machine{}); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("second open: %v", err)
	}
	f.Close()
	if f, err = Open(dir, testOptions(2), Machine{}); err != nil {
		t.Fatalf("after close: %v", err)
	}
	f.Close()
}

// Every length of a cut-off file is taken up to the bytes of an unbroken run; damage inside is not.
func TestHalfWrittenLine(t *testing.T) {
	whole := t.TempDir()
	if _, err := runAll(t, whole, 2, &fakes.Runner{}); err != nil {
		t.Fatal(err)
	}
	want, results := read(t, whole, samplesFile), read(t, whole, resultsFile)
	for _, cut := range []int{0, 1, len(want) / 3, len(want) / 2, len(want) - 1} {
		if err := os.WriteFile(filepath.Join(whole, samplesFile), []byte(want[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := runAll(t, whole, 2, &fakes.Runner{}); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if read(t, whole, samplesFile) != want || read(t, whole, resultsFile) != results {
			t.Errorf("cut at %d: not the bytes of an unbroken run", cut)
		}
	}
	lines := strings.SplitAfter(want, "\n")
	torn := lines[0] + strings.Repeat("\x00", 20) + "\n"
	if err := os.WriteFile(filepath.Join(whole, samplesFile), []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runAll(t, whole, 2, &fakes.Runner{}); err != nil || read(t, whole, samplesFile) != want {
		t.Errorf("torn last line: %v", err)
	}
	for name, text := range map[string]string{"bad line inside": torn + lines[1], "the same twice": lines[0] + lines[0]} {
		if err := os.WriteFile(filepath.Join(whole, samplesFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := runAll(t, whole, 2, &fakes.Runner{}); !errors.Is(err, ErrFolder) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const childEnv = "TERRACE_TEST_RUN_CHILD"

// TestMain lets the test binary play the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		f, err := Open(dir, testOptions(killSamples), Machine{CPU: "fake"})
		if err == nil {
			_, err = Run(context.Background(), f, echoSuite{killSamples}, &fakes.Runner{Delay: 2 * time.Millisecond}, nil)
		}
		if err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const killSamples = 60

// A process killed with SIGKILL at random moments, again and again, loses at most the sample in flight, and the finished
// folder is byte-equal to that of an unbroken run.
func TestKilled(t *testing.T) {
	unbroken, dir := t.TempDir(), t.TempDir()
	if _, err := runAll(t, unbroken, killSamples, &fakes.Runner{}); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	kept, kills := 0, 0
	wait := 20 * time.Millisecond // grows until the child gets anywhere: a loaded machine starts it slowly
	for try := 0; ; try++ {
		if try > 100 {
			t.Fatalf("no progress (seed %d)", seed)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(wait+time.Duration(rng.IntN(60))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		lines := 0
		if raw, rerr := os.ReadFile(filepath.Join(dir, samplesFile)); rerr == nil {
			lines = strings.Count(string(raw), "\n")
		}
		if lines < kept {
			t.Fatalf("kill %d: %d outcomes, %d were there before (seed %d)", kills, lines, kept, seed)
		}
		if lines == kept {
			wait += wait / 2
		}
		kept = lines
		if err == nil {
			break
		}
		if cmd.ProcessState.Exited() {
			t.Fatalf("child failed by itself (seed %d)", seed)
		}
		kills++
	}
	if kills < 2 {
		t.Errorf("only %d kills hit", kills)
	}
	for _, name := range []string{samplesFile, resultsFile} {
		if read(t, dir, name) != read(t, unbroken, name) {
			t.Errorf("%s differs from an unbroken run after %d kills (seed %d)", name, kills, seed)
		}
	}
	t.Logf("%d kills", kills)
}

// Cancelling stops without failed outcomes; a failing or panicking sample is kept as failed.
func TestCancelAndFailures(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, testOptions(4), Machine{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err = Run(ctx, f, echoSuite{4}, &fakes.Runner{}, func(p Progress) {
		if p.Done == 5 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || len(f.Outcomes()) != 5 {
		t.Errorf("cancelled: %v, %d outcomes", err, len(f.Outcomes()))
	}
	if res, outcomes, err := Read(dir); err != nil || res.Complete || len(outcomes) != 5 {
		t.Errorf("what a stopped run leaves: %v, %d outcomes", err, len(outcomes))
	}
	f.Close()
	bad := &fakes.Runner{Fail: func(prompt, policy string) error {
		if strings.HasPrefix(prompt, "b question 1") && policy == "few" {
			panic("boom")
		}
		if policy == "other" {
			return errors.New("policy refuses")
		}
		return nil
	}}
	res, err := runAll(t, dir, 4, bad)
	if err != nil || !res.Complete {
		t.Fatal(err)
	}
	for _, o := range mustRead(t, dir) {
		failed := o.Task == "b" && o.ID == "3" || o.Policy == "other" && (o.Task != "a" || o.ID != "0") || o.Task == "b" && o.ID == "1" && o.Policy != "full"
		if (o.Score == nil) != failed || (o.Error != "") != failed {
			t.Errorf("%s/%s %s: score %v error %q, want failed %v", o.Task, o.ID, o.Policy, o.Score, o.Error, failed)
		}
	}
}

func mustRead(t *testing.T, dir string) []eval.Outcome {
	_, outcomes, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

// A disk that fills up ends the run with an error, leaves whole lines only, and the run goes on later. /dev/full stands
// for the disk: writes to it fail with ENOSPC.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, testOptions(2), Machine{})
	if err != nil {
		t.Fatal(err)
	}
	real := f.samples
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no /dev/full")
	}
	n := 0
	_, err = Run(context.Background(), f, echoSuite{2}, &fakes.Runner{}, func(Progress) {
		if n++; n == 4 {
			f.samples = full
		}
	})
	if err == nil || !strings.Contains(err.Error(), "no space left") || len(f.Outcomes()) != 4 {
		t.Errorf("disk full: %v, %d outcomes", err, len(f.Outcomes()))
	}
	f.samples = real
	full.Close()
	f.Close()
	if res, err := runAll(t, dir, 2, &fakes.Runner{}); err != nil || !res.Complete {
		t.Errorf("later: %v", err)
	}
}

// Scores by hand.
func TestScoreOf(t *testing.T) {
	num := func(x float64) *float64 { return &x }
	pct, ppl := eval.Metric{Kind: eval.Percent}, eval.Metric{Kind: eval.Perplexity}
	cell := []eval.Outcome{{Score: num(1)}, {Score: num(0.5)}, {Error: "x"}, {Score: num(0.5)}}
	s := ScoreOf(pct, cell) // 1, .5, 0, .5: mean 50 %, sd √(.5/3), /√4
	if s.Score != 50 || s.N != 4 || s.Failed != 1 || math.Abs(s.StdErr-100*math.Sqrt(0.5/3)/2) > 1e-9 {
		t.Errorf("percent: %+v", s)
	}
	cell = []eval.Outcome{{Score: num(2), Weight: 1}, {Score: num(1), Weight: 3}, {Error: "x"}}
	s = ScoreOf(ppl, cell) // weighted mean 1.25
	if math.Abs(s.Score-math.Exp(1.25)) > 1e-12 || s.N != 2 || s.Failed != 1 {
		t.Errorf("perplexity: %+v", s)
	}
	if got := ScoreOf(pct, nil); got != (Score{}) {
		t.Errorf("nothing: %+v", got)
	}
}

func TestResultsJSONIsFlat(t *testing.T) {
	dir := t.TempDir()
	if _, err := runAll(t, dir, 2, &fakes.Runner{}); err != nil {
		t.Fatal(err)
	}
	var raw struct{ Tasks []map[string]any }
	if err := json.Unmarshal([]byte(read(t, dir, resultsFile)), &raw); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"task", "policy", "score", "stderr", "n", "failed", "ttft_ms", "itl_ms", "kv_bytes_peak", "by"} {
		if _, ok := raw.Tasks[0][key]; !ok {
			t.Errorf("results.json tasks lack %q: %v", key, raw.Tasks[0])
		}
	}
}

// changing is a runner whose model is written over after some prompts.
type changing struct {
	*fakes.Runner
	after int
}

var errOver = errors.New("written over")

func (c changing) Check() error {
	if c.Prefills > c.after {
		return errOver
	}
	return nil
}

// TestChangedModelEndsTheRun keeps no outcome, failed or not, of a model that is no longer the one that was opened.
func TestChangedModelEndsTheRun(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, testOptions(5), Machine{CPU: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Run(t.Context(), f, echoSuite{5}, changing{&fakes.Runner{}, 2}, nil); !errors.Is(err, errOver) {
		t.Errorf("%v, want %v", err, errOver)
	}
	if lines := strings.Count(read(t, dir, samplesFile), "\n"); lines != 6 {
		t.Errorf("%d outcomes are kept, want those of the 2 samples before: 6", lines)
	}
}

// TestBatchNeedsABatcher: a runner that takes one sample at a time is not asked for more.
func TestBatchNeedsABatcher(t *testing.T) {
	o := testOptions(2)
	o.Batch = 2
	f, err := Open(t.TempDir(), o, Machine{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Run(t.Context(), f, echoSuite{2}, &fakes.Runner{}, nil); !errors.Is(err, eval.ErrOption) || len(f.Outcomes()) != 0 {
		t.Errorf("%v, %d outcomes", err, len(f.Outcomes()))
	}
}
