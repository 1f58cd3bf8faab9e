package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"terrace/eval/fakes"
)

// limitSuite is echoSuite with a limit; data stands for what is read of the data set.
type limitSuite struct {
	echoSuite
	data string
}

func (s limitSuite) Options() any {
	return map[string]any{"limit": s.n, "data_sha256": s.data + fmt.Sprint(s.n)}
}

// A run takes more policies and a larger limit, and then has what a run of that size has; a smaller limit, other data and fewer
// policies are refused, and nothing changes.
func TestWiderRun(t *testing.T) {
	widest := func(dir, data string, n int, policies ...string) (*Results, *fakes.Runner, error) {
		o, r := testOptions(n), &fakes.Runner{}
		o.Settings, o.Policies = limitSuite{echoSuite{n}, data}.Options(), policies
		f, err := OpenWider(dir, o, Machine{}, func(limit int) (any, error) { return limitSuite{echoSuite{limit}, data}.Options(), nil })
		if err != nil {
			return nil, r, err
		}
		defer f.Close()
		res, err := Run(context.Background(), f, limitSuite{echoSuite{n}, data}, r, nil)
		return res, r, err
	}
	dir, whole := t.TempDir(), t.TempDir()
	if _, _, err := widest(dir, "d", 2, "full"); err != nil {
		t.Fatal(err)
	}
	before := read(t, dir, samplesFile)
	if _, _, err := widest(dir, "d", 3, "full", "few"); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(read(t, dir, samplesFile), before) {
		t.Error("outcomes were lost")
	}
	got, _, err := widest(dir, "d", 5, "full", "few", "other")
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := widest(whole, "d", 5, "full", "few", "other")
	if err != nil || !got.Complete || got.Outcomes != 30 || fmt.Sprint(scores(got)) != fmt.Sprint(scores(want)) {
		t.Errorf("%v: wider %v, at once %v", err, scores(got), scores(want))
	}
	options := read(t, dir, optionsFile)
	for what, open := range map[string]func() (*Results, *fakes.Runner, error){
		"limit":       func() (*Results, *fakes.Runner, error) { return widest(dir, "d", 4, "full", "few", "other") },
		"data_sha256": func() (*Results, *fakes.Runner, error) { return widest(dir, "e", 6, "full", "few", "other") },
		"policies":    func() (*Results, *fakes.Runner, error) { return widest(dir, "d", 5, "full", "few") },
	} {
		if _, _, err := open(); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if read(t, dir, optionsFile) != options {
		t.Error("a refused run changed the folder")
	}
}

// scores are a run's, task by task.
func scores(r *Results) (out []string) {
	for _, t := range r.Tasks {
		out = append(out, fmt.Sprintf("%s %s %v %s", t.Task, t.Policy, t.Score, t.Prompts))
	}
	return out
}

// A run that goes on can be read: its results are those of the outcomes that they name.
func TestReadRunning(t *testing.T) {
	defer func(d time.Duration) { resultsEvery = d }(resultsEvery)
	resultsEvery = time.Hour
	dir := t.TempDir()
	f, err := Open(dir, testOptions(5), Machine{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := false
	if _, err := Run(context.Background(), f, echoSuite{5}, &fakes.Runner{}, func(p Progress) {
		if p.Done != 4 {
			return
		}
		res, outcomes, err := Read(dir)
		seen = true
		if err != nil || res.Complete || res.Outcomes != 1 || len(outcomes) != 1 {
			t.Errorf("%v: %+v, %d outcomes", err, res, len(outcomes))
		}
	}); err != nil || !seen {
		t.Fatal(err, seen)
	}
}
