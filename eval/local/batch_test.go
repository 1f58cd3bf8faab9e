package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/eval"
	"terrace/eval/run"
	"terrace/internal/golden"
)

// rowSuite asks for answers to prompts of different lengths and scores continuations. Row 3's prompt does not fit the context,
// row 5 fills it while its answer is generated.
type rowSuite struct{ context int }

const rowCount = 9

func (s rowSuite) Name() string              { return "rows" }
func (s rowSuite) Options() any              { return nil }
func (s rowSuite) Metric(string) eval.Metric { return eval.Metric{Name: "x", Kind: eval.Percent} }
func (s rowSuite) Samples(context.Context, eval.Runner) ([]eval.Sample, error) {
	var out []eval.Sample
	for i := range rowCount {
		n := 30 + 7*i%40
		switch i {
		case 3:
			n = s.context + 1
		case 5:
			n = s.context - 6
		}
		ids := make([]int, n)
		for k := range ids {
			ids[k] = 3 + (i*31+k*7)%250
		}
		out = append(out, eval.Sample{Task: "rows", ID: fmt.Sprint(i), Data: ids})
	}
	return out, nil
}

func (s rowSuite) Evaluate(ctx context.Context, r eval.Runner, x eval.Sample, policies []string, emit func(eval.Outcome) error) error {
	ids := x.Data.([]int)
	return r.Prompt(ctx, ids, policies, func(i int, session eval.Session, err error) error {
		o := eval.Outcome{Task: x.Task, ID: x.ID, Policy: policies[i], Prompt: len(ids)}
		var g *eval.Generation
		var scores []eval.TokenScore
		if err == nil {
			scores, err = session.Continue(ctx, []int{9, 10, 11})
		}
		if err == nil {
			g, err = session.Generate(ctx, eval.Generate{MaxTokens: 12, MinTokens: 4})
		}
		if err == nil {
			err = session.Force(ctx, []int{20, 21}, func(int, []float32) error { return nil })
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return emit(eval.Failed(x, policies[i], err))
		}
		score, raw := scores[2].LogProb, fmt.Sprint(g.IDs)
		o.Score, o.Values, o.Pred = &score, map[string]float64{"last": float64(session.Logits()[7])}, raw
		o.Took(0, session.Cost(), g)
		return emit(o)
	})
}

var batchPolicies = []string{"full", "snapkv:budget=50%,window=8", "h2o:budget=50%", "quest:budget=50%"}

// evaluate runs or takes up a run of the rows.
func evaluate(ctx context.Context, t *testing.T, r *Runner, dir string, batch int, policies []string, progress func(run.Progress)) (*run.Results, error) {
	t.Helper()
	f, err := run.Open(dir, run.Options{Suite: "rows", Policies: policies, Model: r.Model(), Batch: batch}, run.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	res, err := run.Run(ctx, f, rowSuite{r.Model().Context}, r, progress)
	for name, e := range r.engines {
		if u := e.KV(); u.Sequences != 0 || u.InUseBytes != 0 {
			t.Errorf("%s: %d sessions and %d bytes are left", name, u.Sequences, u.InUseBytes)
		}
	}
	return res, err
}

// outcomes are the lines of samples.jsonl without times, by sample and policy; each must be there once.
func outcomes(t *testing.T, dir string) map[eval.Key]eval.Outcome {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[eval.Key]eval.Outcome{}
	for line := range strings.Lines(string(raw)) {
		var o eval.Outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if _, twice := out[o.Key()]; twice {
			t.Errorf("%v is there twice", o.Key())
		}
		o.TTFT, o.ITL, o.Prefill = 0, 0, 0
		out[o.Key()] = o
	}
	return out
}

// scores are the results' tasks without times.
func scores(res *run.Results) []run.TaskResult {
	out := slices.Clone(res.Tasks)
	for i := range out {
		out[i].TTFT, out[i].ITL, out[i].Prefill = 0, 0, 0
	}
	return out
}

// openContext is a runner whose sessions hold 100 tokens.
func openContext(t *testing.T) *Runner {
	t.Helper()
	path, context := golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf"), 100
	r := openPath(t, path)
	under := r.open
	r.model.Context = context
	r.open = func(p string) (*engine.Engine, error) {
		e, err := under(p)
		if err != nil {
			return nil, err
		}
		m := e.Model()
		if err := e.Close(); err != nil {
			return nil, err
		}
		return engine.Open(m, engine.Options{Policy: p, Threads: 2, Context: context})
	}
	return r
}

// TestBatchIsAlone: samples that decode together give the answers, scores, errors and most bytes of KV that they give alone, whether policies share
// their prompts or not; samples that fail, before and while decoding, leave the others alone.
func TestBatchIsAlone(t *testing.T) {
	r := openContext(t)
	for _, policies := range [][]string{batchPolicies, {"full"}, {"h2o:budget=50%"}, {"quest:budget=50%"}, {"pqcache"}} {
		alone := t.TempDir()
		want, err := evaluate(t.Context(), t, r, alone, 0, policies, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantAll := outcomes(t, alone)
		for _, size := range []int{2, 4, 64} {
			dir := t.TempDir()
			got, err := evaluate(t.Context(), t, r, dir, size, policies, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(got.Note, fmt.Sprintf("up to %d samples", size)) || want.Note != "" {
				t.Errorf("notes %q and %q", got.Note, want.Note)
			}
			if !reflect.DeepEqual(scores(got), scores(want)) {
				t.Errorf("%d of %v together: scores %+v, want %+v", size, policies, scores(got), scores(want))
			}
			gotAll := outcomes(t, dir)
			if len(gotAll) != rowCount*len(policies) || len(wantAll) != len(gotAll) {
				t.Errorf("%d outcomes, %d alone", len(gotAll), len(wantAll))
			}
			for k, want := range wantAll {
				got := gotAll[k]
				if peak := got.KVPeak["host"]; got.Error == "" && (peak == 0 || peak < got.KVHeld["host"]) {
					t.Errorf("%v: a peak of %d bytes, %d held", k, peak, got.KVHeld["host"])
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%d together: %+v, want %+v", size, got, want)
				}
				if failed := k.ID == "3" || k.ID == "5"; failed != strings.Contains(got.Error, "does not fit the context") {
					t.Errorf("%v: error %q", k, got.Error)
				}
			}
		}
	}
}

// TestBatchDecodesTogether: works take their steps in turn, one that has ended is replaced.
func TestBatchDecodesTogether(t *testing.T) {
	r := open(t)
	var order []string
	ask := func(name string, steps int) func(context.Context, eval.Runner) error {
		return func(ctx context.Context, r eval.Runner) error {
			return r.Prompt(ctx, promptIDs(20), []string{"full"}, func(_ int, s eval.Session, err error) error {
				if err != nil {
					return err
				}
				return s.Force(ctx, promptIDs(steps), func(i int, _ []float32) error {
					order = append(order, fmt.Sprint(name, i))
					return nil
				})
			})
		}
	}
	err := r.Batch(t.Context(), 2, slices.Values([]func(context.Context, eval.Runner) error{ask("a", 2), ask("b", 4), ask("c", 2)}))
	if want := []string{"a0", "b0", "a1", "b1", "b2", "c0", "b3", "c1"}; err != nil || !slices.Equal(order, want) {
		t.Errorf("%v %v, want %v", err, order, want)
	}
}

// TestBatchEnds: a cancelled run and one whose outcome cannot be kept stop without failed outcomes, and are taken up.
func TestBatchEnds(t *testing.T) {
	r := openContext(t)
	alone := t.TempDir()
	if _, err := evaluate(t.Context(), t, r, alone, 0, batchPolicies, nil); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := evaluate(ctx, t, r, dir, 4, batchPolicies, func(p run.Progress) {
		if p.Done == 7 {
			cancel()
		}
	})
	if n := len(outcomes(t, dir)); !errors.Is(err, context.Canceled) || n != 7 {
		t.Errorf("cancelled: %v, %d outcomes", err, n)
	}
	if _, err := evaluate(t.Context(), t, r, dir, 4, batchPolicies, nil); err != nil {
		t.Fatal(err)
	}
	got := outcomes(t, dir)
	for k, want := range outcomes(t, alone) {
		if got[k].Pred != want.Pred || got[k].Error != want.Error || !reflect.DeepEqual(got[k].Score, want.Score) {
			t.Errorf("taken up: %+v, want %+v", got[k], want)
		}
	}

	broken, ended, ran := errors.New("the disk is full"), 0, 0
	err = r.Batch(t.Context(), 3, func(yield func(func(context.Context, eval.Runner) error) bool) {
		for i := range 20 {
			if !yield(func(ctx context.Context, r eval.Runner) error {
				ran++
				err := r.Prompt(ctx, promptIDs(20+i), []string{"full"}, func(_ int, s eval.Session, prompted error) error {
					if prompted != nil {
						return prompted
					}
					_, err := s.Generate(ctx, eval.Generate{MaxTokens: 3 + 3*i, MinTokens: 30})
					return err
				})
				if i == 1 && err == nil {
					return broken
				}
				if errors.Is(err, context.Canceled) {
					ended++
				}
				return err
			}) {
				return
			}
		}
	})
	if !errors.Is(err, broken) || ran != 4 || ended != 2 {
		t.Errorf("%v; %d were begun, %d cancelled", err, ran, ended)
	}
	if n := r.engines["full"].KV().Sequences; n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestBatchPanics: a panic of a work leaves no session behind, and is the caller's.
func TestBatchPanics(t *testing.T) {
	r := open(t)
	var works iter.Seq[func(context.Context, eval.Runner) error] = func(yield func(func(context.Context, eval.Runner) error) bool) {
		for i := range 3 {
			if !yield(func(ctx context.Context, r eval.Runner) error {
				return r.Prompt(ctx, promptIDs(20), []string{"full"}, func(_ int, s eval.Session, prompted error) error {
					if prompted != nil {
						return prompted
					}
					if i == 2 {
						panic("boom")
					}
					_, err := s.Generate(ctx, eval.Generate{MaxTokens: 9, MinTokens: 9})
					if ctx.Err() == nil {
						t.Error("a work goes on as if nothing were")
					}
					return err
				})
			}) {
				return
			}
		}
	}
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v", got)
			}
		}()
		_ = r.Batch(t.Context(), 3, works)
	}()
	if n := r.engines["full"].KV().Sequences; n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestBatchSizes: what cannot be is refused with one line.
func TestBatchSizes(t *testing.T) {
	r := open(t)
	for _, n := range []int{-1, 0, MaxBatch + 1} {
		if err := r.Batch(t.Context(), n, nil); !errors.Is(err, eval.ErrOption) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d: %v", n, err)
		}
	}
}
