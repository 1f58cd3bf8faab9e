package forced

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/fakes"
)

const story = "The quick brown fox jumps over the lazy dog, again and again, until it is tired and sleeps. "

func perplexity(t *testing.T, o PerplexityOptions) (*Perplexity, []eval.Sample) {
	t.Helper()
	o.Data = t.TempDir()
	if err := os.MkdirAll(filepath.Join(o.Data, "pg19"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.txt", "b.txt"} {
		if err := os.WriteFile(filepath.Join(o.Data, "pg19", name), []byte(strings.Repeat(story, 4)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewPerplexity(o)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := s.Samples(context.Background(), &fakes.Runner{})
	if err != nil {
		t.Fatal(err)
	}
	return s, samples
}

func evaluate(t *testing.T, s eval.Suite, r eval.Runner, x eval.Sample, policies ...string) []eval.Outcome {
	t.Helper()
	var out []eval.Outcome
	if err := s.Evaluate(context.Background(), r, x, policies, func(o eval.Outcome) error { out = append(out, o); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// The score is the mean of what Continue says about the same tokens after the same prompt.
func TestPerplexityIsTheMeanLogLikelihood(t *testing.T) {
	s, samples := perplexity(t, PerplexityOptions{Chunk: 100, KL: true})
	if len(samples) != 6 || samples[3].ID != "1-0" {
		t.Fatalf("%d samples", len(samples))
	}
	r := &fakes.Runner{}
	got := evaluate(t, s, r, samples[1], "full", "few")
	chunk := samples[1].Data.([]int)
	for i, policy := range []string{"full", "few"} {
		want := 0.0
		err := r.Prompt(context.Background(), chunk[:51], []string{policy}, func(_ int, session eval.Session, _ error) error {
			scores, err := session.Continue(context.Background(), chunk[51:])
			for _, x := range scores {
				want -= x.LogProb / 49
			}
			return err
		})
		if err != nil || math.Abs(*got[i].Score-want) > 1e-9 || got[i].Weight != 49 {
			t.Errorf("%s: %v, want %v (%v)", policy, *got[i].Score, want, err)
		}
	}
	if got[0].Values["kl"] > 1e-9 || got[0].Values["same_top"] != 1 || got[1].Values["kl"] <= 0 || got[1].Values["same_top"] >= 1 {
		t.Errorf("full %v, few %v", got[0].Values, got[1].Values)
	}
	alone := evaluate(t, s, r, samples[1], "few")
	if len(alone) != 1 || *alone[0].Score != *got[1].Score || alone[0].Values["kl"] != got[1].Values["kl"] {
		t.Errorf("taken up without full: %+v", alone)
	}
}

func TestDivergenceByHand(t *testing.T) {
	b := newBase(2)
	b.add([]float64{math.Log(0.75), math.Log(0.25)})
	b.add([]float64{math.Log(0.5), math.Log(0.5)})
	c := comparison{base: b}
	c.add(0, []float64{math.Log(0.5), math.Log(0.5)})
	c.add(1, []float64{math.Log(0.25), math.Log(0.75)})
	c.add(2, []float64{0, 0}) // not kept: not compared
	want := (0.75*math.Log(1.5) + 0.25*math.Log(0.5) + 0.5*math.Log(2) + 0.5*math.Log(2.0/3)) / 2
	v := c.values()
	if math.Abs(v["kl"]-want) > 1e-7 || v["same_top"] != 0.5 || v["common_prefix"] != 1 || c.n != 2 {
		t.Errorf("%v, want kl %v", v, want)
	}
	lp := make([]float64, 3)
	logProbs(lp, []float32{1000, 1000, 1000 - 50})
	if math.Abs(lp[0]-math.Log(0.5)) > 1e-9 {
		t.Errorf("log-softmax %v", lp)
	}
}

type list struct{ texts []string }

func (l list) Name() string              { return "list" }
func (l list) Options() any              { return nil }
func (l list) Metric(string) eval.Metric { return eval.Metric{} }
func (l list) Samples(context.Context, eval.Runner) ([]eval.Sample, error) {
	var out []eval.Sample
	for _, x := range l.texts {
		out = append(out, eval.Sample{Task: "list", ID: x, Data: x})
	}
	return out, nil
}
func (l list) Evaluate(context.Context, eval.Runner, eval.Sample, []string, func(eval.Outcome) error) error {
	return nil
}
func (l list) PromptIDs(r eval.Runner, x eval.Sample) ([]int, error) {
	return r.Encode(x.Data.(string))
}

// A policy that sees the same as full agrees wholly; one that sees less does not. The prompt is shorter than the fake's
// windows in the first case.
func TestAgreement(t *testing.T) {
	s, err := NewAgreement(list{[]string{"abc", story}}, 5)
	if err != nil {
		t.Fatal(err)
	}
	samples, _ := s.Samples(context.Background(), nil)
	got := evaluate(t, s, &fakes.Runner{}, samples[0], "few", "full")
	if got[0].Policy != "full" || *got[0].Score != 1 || *got[1].Score != 1 || got[1].Values["kl"] > 1e-6 || got[1].Values["common_prefix"] != 5 || got[1].Generated != 5 {
		t.Errorf("short prompt: %+v", got)
	}
	got = evaluate(t, s, &fakes.Runner{}, samples[1], "few")
	if len(got) != 1 || got[0].Policy != "few" || *got[0].Score == 1 || got[0].Values["kl"] <= 0 {
		t.Errorf("long prompt: %+v", got)
	}
	for _, o := range evaluate(t, s, &fakes.Runner{}, samples[1], "full", "few") {
		// the fake reads 64 bytes of each token in its window of 64 (few: 8), and scans one of each token; 5 predictions are 4 steps
		n, read := float64(len(story)+4), 64.0*64
		if o.Policy == "few" {
			read = 64 * 8
		}
		if v := o.Values; v["kv_mib_per_token"] != read/(1<<20) || v["scan_mib_per_token"] != n/(1<<20) || math.Abs(v["bytes_share"]-(read+n)/(64*64)) > 1e-12 {
			t.Errorf("%s: %v, want %g bytes of KV", o.Policy, v, read)
		}
	}
	failing := &fakes.Runner{Fail: func(_, policy string) error {
		if policy == "few" {
			return errors.New("no")
		}
		return nil
	}}
	if got = evaluate(t, s, failing, samples[1], "full", "few", "other"); got[1].Error == "" || got[2].Error != "" || len(got) != 3 {
		t.Errorf("a failing policy: %+v", got)
	}
}

func TestPerplexityOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.txt")
	if err := os.WriteFile(file, []byte(story), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := NewPerplexity(PerplexityOptions{Data: file, Chunk: 40})
	if err != nil || !slices.Equal(s.tasks, []string{"text"}) {
		t.Fatalf("%v %v", s, err)
	}
	for name, o := range map[string]PerplexityOptions{"no data": {Data: t.TempDir()}, "task without data": {Data: file, Tasks: []string{"pg19"}}} {
		if _, err := NewPerplexity(o); !errors.Is(err, eval.ErrData) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewPerplexity(PerplexityOptions{Data: file, Chunk: 3}); !errors.Is(err, eval.ErrOption) {
		t.Errorf("chunk: %v", err)
	}
	long, _ := NewPerplexity(PerplexityOptions{Data: file, Chunk: 4000})
	if _, err := long.Samples(context.Background(), &fakes.Runner{}); !errors.Is(err, eval.ErrData) {
		t.Errorf("short text: %v", err)
	}
	if _, err := long.Samples(context.Background(), &fakes.Runner{Context: 100}); !errors.Is(err, eval.ErrOption) {
		t.Errorf("context: %v", err)
	}
}
