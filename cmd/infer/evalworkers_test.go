package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"terrace/eval"
)

const processEnv = "TERRACE_TEST_INFER_PROCESS"

// TestMain lets the test binary play infer as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv(processEnv) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// processCommand is infer as a process of its own, not yet started.
func processCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), processEnv+"=1")
	return cmd
}

// inferProcess starts infer; its stderr is kept for messages.
func inferProcess(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := processCommand(args...)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &errs, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, &errs
}

// jetStream starts a NATS server inside the test and connects to it. asked receives what workers send to ask for a sample.
func jetStream(t *testing.T) (url string, js jetstream.JetStream, asked *nats.Subscription) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if asked, err = nc.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.>"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); s.Shutdown(); s.WaitForShutdown() })
	return s.ClientURL(), js, asked
}

// inWork is how many samples workers hold now; ok is false when no run is on the server.
func inWork(js jetstream.JetStream) (held int, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for info := range js.ListStreams(ctx).Info() {
		if !strings.Contains(info.Config.Name, "_JOBS_") {
			continue
		}
		c, err := js.Consumer(ctx, info.Config.Name, "workers")
		if err != nil {
			return 0, false
		}
		i, err := c.Info(ctx)
		if err != nil {
			return 0, false
		}
		return i.NumAckPending, true
	}
	return 0, false
}

// nextAsk returns when a worker has asked for a sample, false where none does.
func nextAsk(asked *nats.Subscription, within time.Duration) bool {
	for {
		m, err := asked.NextMsg(within)
		if err != nil || strings.Contains(m.Subject, "_JOBS_") {
			return err == nil
		}
	}
}

// killHolder stops the worker where it holds a sample (two are in work and the keeper has but one), and kills it there. The
// keeper stands still until the worker has joined, so that samples are left.
func killHolder(t *testing.T, js jetstream.JetStream, asked *nats.Subscription, keeper, worker *exec.Cmd) {
	t.Helper()
	if !nextAsk(asked, time.Minute) {
		t.Fatal("the keeper asks for no sample")
	}
	stop(t, keeper)
	inWork(js) // what the keeper had sent before is here
	for n, _, _ := asked.Pending(); n > 0; n, _, _ = asked.Pending() {
		_, _ = asked.NextMsg(time.Second)
	}
	if !nextAsk(asked, time.Minute) {
		t.Fatal("the worker asks for no sample")
	}
	goOn(t, keeper)
	for {
		working := nextAsk(asked, 10*time.Second)
		held, ok := inWork(js)
		if !ok || !working && held < 2 {
			t.Skip("this machine ran all samples before a worker could be stopped: nothing was tested")
		}
		if held < 2 {
			continue
		}
		stop(t, worker)
		for range 50 { // what it had sent before is handled
			if held, _ = inWork(js); held < 2 {
				break
			}
		}
		if held == 2 {
			break
		}
		goOn(t, worker)
	}
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait()
}

// workersData is a folder of rows whose answers take a while, and a model of random weights that gives them.
func workersData(t *testing.T, rows int) (data, model string) {
	t.Helper()
	data = t.TempDir()
	model = filepath.Join(t.TempDir(), "random.gguf")
	if code, _, errs := inferWith(t, "", "synth", model, "--layers", "2", "--hidden", "64", "--heads", "4", "--head-dim", "16", "--vocab", "300", "--type", "F32", "-q"); code != 0 {
		t.Fatal(errs)
	}
	var lines strings.Builder
	for i := range rows {
		fmt.Fprintf(&lines, `{"input":"q%d","context":"a b %d","answers":["a"],"length":3,"dataset":"lcc","all_classes":null,"_id":"1"}`+"\n", i, i*i)
	}
	for name, text := range map[string]string{"lcc.jsonl": lines.String(), "dataset2prompt.json": `{"lcc":"{context}{input}"}`, "dataset2maxlen.json": `{"lcc":300}`} {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return data, model
}

// answers are the outcomes of a run without what depends on the clock, sorted.
func answers(t *testing.T, dir string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		var o eval.Outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Score == nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, fmt.Sprintf("%s/%s %s %q %v %v", o.Task, o.ID, o.Policy, o.Pred, *o.Score, o.KVHeld))
	}
	slices.Sort(out)
	return out
}

// Two infer processes share a run over NATS; one is killed with SIGKILL while it holds a sample. The sample is handed to
// the other, and every outcome is there once, equal to those of a run by one process.
func TestEvalWorkersOneKilled(t *testing.T) {
	const rows = 30
	data, model := workersData(t, rows)
	url, js, asked := jetStream(t)
	out := filepath.Join(t.TempDir(), "shared")
	args := []string{"eval", "-m", model, "--suite", "longbench", "--tasks", "lcc", "--data", data, "--policy", "full", "--policy", "streaming_llm:sinks=1,budget=8", "-t", "1"}
	shared := append(slices.Clone(args), "--workers", url, "--worker-timeout", "1s")
	worker, _ := inferProcess(t, append(shared, "--join")...)
	keeper, errs := inferProcess(t, append(shared, "--out", out)...)
	killHolder(t, js, asked, keeper, worker)
	if err := keeper.Wait(); err != nil {
		t.Fatalf("keeper: %v\n%s", err, errs)
	}
	alone := filepath.Join(t.TempDir(), "alone")
	if code, _, errs := inferWith(t, "", append(args, "--out", alone)...); code != 0 {
		t.Fatal(errs)
	}
	got, want := answers(t, out), answers(t, alone)
	if len(want) != 2*rows || !slices.Equal(got, want) {
		t.Errorf("%d outcomes of a shared run, %d of a run by one process; equal: %v", len(got), len(want), slices.Equal(got, want))
	}
	if code, _, errs := inferWith(t, "", append(shared, "--out", out)...); code != 0 || !strings.Contains(errs, fmt.Sprintf("taking up a run with %d outcomes", 2*rows)) {
		t.Errorf("again: exit %d %s", code, errs)
	}
}
