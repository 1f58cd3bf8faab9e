//go:build !lean

package share

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"terrace/eval"
	"terrace/eval/fakes"
	"terrace/eval/run"
)

// serve starts a NATS server with JetStream inside the test.
func serve(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s.ClientURL()
}

type questions struct{ n int }

func (s questions) Name() string              { return "questions" }
func (s questions) Options() any              { return map[string]any{"n": s.n} }
func (s questions) Metric(string) eval.Metric { return eval.Metric{Name: "x", Kind: eval.Percent} }
func (s questions) Samples(context.Context, eval.Runner) ([]eval.Sample, error) {
	var out []eval.Sample
	for i := range s.n {
		out = append(out, eval.Sample{Task: "q", ID: fmt.Sprint(i)})
	}
	return out, nil
}

func (s questions) Evaluate(ctx context.Context, r eval.Runner, x eval.Sample, policies []string, emit func(eval.Outcome) error) error {
	ids, err := r.Encode("question " + x.ID)
	if err != nil {
		return err
	}
	return eval.Ask(ctx, r, x, eval.Question{IDs: ids, Gen: eval.Generate{MaxTokens: 4}, Score: func(o *eval.Outcome) error {
		v := float64(o.Pred[0]%5) / 4
		o.Score = &v
		return nil
	}}, policies, emit)
}

const sampleCount = 40

func options(n int) run.Options {
	return run.Options{Version: "test", Suite: "questions", Settings: map[string]any{"n": n}, Policies: []string{"full", "few"}, Model: (&fakes.Runner{}).Model()}
}

func open(t *testing.T, n int) (*run.Folder, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := run.Open(dir, options(n), run.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, dir
}

// sortedLines are the outcomes of a folder, whatever order they came in.
func sortedLines(t *testing.T, dir string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(strings.Lines(string(raw)))
}

func unshared(t *testing.T, n int) string {
	t.Helper()
	f, dir := open(t, n)
	if _, err := run.Run(context.Background(), f, questions{n}, &fakes.Runner{}, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func results(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

const childEnv = "TERRACE_TEST_SHARE_CHILD"

// gateRunner calls gate at one of its prompts.
type gateRunner struct {
	fakes.Runner
	at   int // counted from 1
	seen int
	gate func()
}

func (r *gateRunner) Prompt(ctx context.Context, ids []int, policies []string, use func(int, eval.Session, error) error) error {
	if r.seen++; r.seen == r.at {
		r.gate()
	}
	return r.Runner.Prompt(ctx, ids, policies, use)
}

// TestMain lets the test binary play a worker on another machine.
func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		_, err := Join(context.Background(), Options{URL: url, AckWait: time.Second}, options(sampleCount), questions{sampleCount}, &gateRunner{at: 2, gate: func() {
			os.Stdout.WriteString("holds a job\n")
			<-time.After(time.Minute) // to be killed long before
		}})
		if err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Two workers share a run; one, a process of its own, is killed with a job in its hands. Every outcome is there once, and
// the results are those of a run by one process.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	url := serve(t)
	f, dir := open(t, sampleCount)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+url)
	cmd.Stderr = os.Stderr
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := make(chan struct{})
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-killed })
	go func() {
		defer close(killed)
		if _, err := io.ReadFull(said, make([]byte, len("holds a job\n"))); err != nil {
			t.Errorf("the worker ended before it held a second job: %v", err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	res, err := Keep(context.Background(), Options{URL: url, AckWait: time.Second}, f, questions{sampleCount}, &gateRunner{at: 3, gate: func() { <-killed }}, true, nil)
	if err != nil || !res.Complete {
		t.Fatal(err)
	}
	alone := unshared(t, sampleCount)
	if got, want := sortedLines(t, dir), sortedLines(t, alone); !slices.Equal(got, want) {
		t.Errorf("%d outcomes, want %d; equal: false", len(got), len(want))
	}
	if results(t, dir) != results(t, alone) {
		t.Error("results differ from an unshared run")
	}
}

// A worker that only joins does the whole run, counts its samples, and ends with the run.
func TestJoin(t *testing.T) {
	t.Parallel()
	url := serve(t)
	f, dir := open(t, 10)
	type end struct {
		n   int
		err error
	}
	joined := make(chan end, 1)
	waiting := make(chan string, 8)
	go func() {
		n, err := Join(context.Background(), Options{URL: url, AckWait: time.Second, Notice: func(s string) { waiting <- s }}, options(10), questions{10}, &fakes.Runner{})
		joined <- end{n, err}
	}()
	if s := <-waiting; !strings.Contains(s, "waiting") {
		t.Errorf("notice %q", s)
	}
	if _, err := Keep(context.Background(), Options{URL: url, AckWait: time.Second}, f, questions{10}, &fakes.Runner{}, false, nil); err != nil {
		t.Fatal(err)
	}
	if e := <-joined; e.err != nil || e.n != 10 {
		t.Errorf("joined: %+v", e)
	}
	if !slices.Equal(sortedLines(t, dir), sortedLines(t, unshared(t, 10))) {
		t.Error("outcomes differ from an unshared run")
	}
}

// A keeper that is stopped and started again goes on where the folder stands.
func TestKeeperResumes(t *testing.T) {
	t.Parallel()
	url := serve(t)
	f, dir := open(t, 12)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Keep(ctx, Options{URL: url, AckWait: time.Second}, f, questions{12}, &fakes.Runner{}, true, func(p run.Progress) {
		if p.Done == 7 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	f.Close()
	f, err = run.Open(dir, options(12), run.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := len(f.Outcomes()); n < 7 || n >= 24 {
		t.Errorf("%d outcomes after the stop", n)
	}
	if _, err := Keep(context.Background(), Options{URL: url, AckWait: time.Second}, f, questions{12}, &fakes.Runner{}, true, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(sortedLines(t, dir), sortedLines(t, unshared(t, 12))) {
		t.Error("outcomes differ from an unshared run")
	}
}

// A worker with other options is refused, and told the field; what a stopped keeper left refuses nobody.
func TestOtherOptionsAreRefused(t *testing.T) {
	t.Parallel()
	url := serve(t)
	f, _ := open(t, 3)
	other := options(3)
	other.Model.Fingerprint = "another"
	ctx, stop := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() {
		_, err := Keep(ctx, Options{URL: url}, f, questions{3}, &fakes.Runner{}, false, nil)
		kept <- err
	}()
	l, err := connect(Options{URL: url}, other)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for err == nil { // until the keeper is at work
		err = l.others(context.Background())
	}
	if _, err := Join(context.Background(), Options{URL: url}, other, questions{3}, &fakes.Runner{}); !errors.Is(err, run.ErrChanged) || !strings.Contains(err.Error(), "model.fingerprint") {
		t.Errorf("%v", err)
	}
	stop()
	if err := <-kept; !errors.Is(err, context.Canceled) {
		t.Errorf("keeper: %v", err)
	}
	notices := make(chan string, 1)
	waiting, leave := context.WithCancel(context.Background())
	go func() { <-notices; leave() }()
	if _, err := Join(waiting, Options{URL: url, Notice: func(s string) { notices <- s }}, other, questions{3}, &fakes.Runner{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that nobody keeps: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	if _, err := Join(context.Background(), Options{URL: "nats://127.0.0.1:1"}, options(1), questions{1}, &fakes.Runner{}); !errors.Is(err, ErrServer) {
		t.Errorf("%v", err)
	}
}
