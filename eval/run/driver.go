package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"terrace/eval"
)

// Progress is reported after each outcome.
type Progress struct {
	Done, Total  int    // outcomes
	Task         string // of the last one
	Task0, Tasks int    // 1-based number of the task, number of tasks
	Score        Score  // running score of the last outcome's task and policy
	Failed       int
}

// predictor is a suite with prediction files of its own format.
type predictor interface {
	PredictionFiles(model string, outcomes []eval.Outcome) (map[string][]byte, error)
}

// Run evaluates what the folder lacks, Options.Batch samples at a time, and writes the results. When ctx ends it stops between
// samples' outcomes; what is there stays, with results that say they are not complete. onProgress may be nil.
func Run(ctx context.Context, f *Folder, suite eval.Suite, r eval.Runner, onProgress func(Progress)) (*Results, error) {
	samples, err := suite.Samples(ctx, r)
	if err != nil {
		return nil, err
	}
	t := NewTracker(f, suite, samples, onProgress)
	err = together(ctx, f.options.Batch, r, func(yield func(work) bool) {
		for _, s := range samples {
			missing := t.Missing(s)
			if len(missing) == 0 {
				continue
			}
			if !yield(func(ctx context.Context, r eval.Runner) error {
				return EvaluateSample(ctx, suite, r, s, missing, t.Add)
			}) {
				return
			}
		}
	})
	res, ferr := t.Finish() // also after an error: what there is can be compared already; the same command goes on
	if err != nil {
		return nil, errors.Join(err, ferr)
	}
	return res, ferr
}

// work evaluates one sample.
type work = func(context.Context, eval.Runner) error

// together runs works, size of them in progress at a time; the first error ends all.
func together(ctx context.Context, size int, r eval.Runner, works iter.Seq[work]) error {
	if size > 1 {
		b, ok := r.(eval.Batcher)
		if !ok {
			return fmt.Errorf("run: a batch of %d samples: this runner takes one at a time: %w", size, eval.ErrOption)
		}
		return b.Batch(ctx, size, works)
	}
	for do := range works {
		if err := do(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// storeError is a failure to keep an outcome: it ends the run, where a failure of the sample would be kept as such.
type storeError struct{ err error }

func (e storeError) Error() string { return e.err.Error() }
func (e storeError) Unwrap() error { return e.err }

// EvaluateSample runs one sample under policies and hands on exactly one outcome for each, failed ones included. An error
// means that ctx ended, that the model is no longer the one that was opened (eval.Checker), or that add failed.
func EvaluateSample(ctx context.Context, suite eval.Suite, r eval.Runner, s eval.Sample, policies []string, add func(eval.Outcome) error) error {
	emitted := map[string]bool{}
	keep := func(o eval.Outcome) error {
		if c, ok := r.(eval.Checker); ok {
			if err := c.Check(); err != nil {
				return err
			}
		}
		return add(o)
	}
	err := guarded(func() error {
		return suite.Evaluate(ctx, r, s, policies, func(o eval.Outcome) error {
			if err := keep(o); err != nil {
				return storeError{err}
			}
			emitted[o.Policy] = true
			return nil
		})
	})
	if store := (storeError{}); errors.As(err, &store) {
		return store.err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, p := range policies {
		if emitted[p] {
			continue
		}
		if err == nil {
			err = fmt.Errorf("run: suite %s gave no outcome", suite.Name())
		}
		if kerr := keep(eval.Failed(s, p, err)); kerr != nil {
			return kerr
		}
	}
	return nil
}

// guarded turns a panic into an error: a bug costs one sample, not the run.
func guarded(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("run: internal error (a bug, please report it): %v", r)
		}
	}()
	return fn()
}

// Tracker keeps outcomes in the folder and count of what is missing.
type Tracker struct {
	f          *Folder
	suite      eval.Suite
	samples    []eval.Sample
	onProgress func(Progress)
	tasks      []string
	total      int
	done       int
	failed     int
	cells      map[[2]string][]eval.Outcome
	written    time.Time // of results.json
}

// resultsEvery is how often a run that goes on writes its results; a variable for tests.
var resultsEvery = 30 * time.Second

// NewTracker counts what the folder has of the samples.
func NewTracker(f *Folder, suite eval.Suite, samples []eval.Sample, onProgress func(Progress)) *Tracker {
	t := &Tracker{f: f, suite: suite, samples: samples, onProgress: onProgress, cells: map[[2]string][]eval.Outcome{}}
	seen := map[string]bool{}
	for _, s := range samples {
		if !seen[s.Task] {
			seen[s.Task] = true
			t.tasks = append(t.tasks, s.Task)
		}
	}
	t.total = len(samples) * len(f.options.Policies)
	for _, o := range f.outcomes {
		t.count(o)
	}
	return t
}

func (t *Tracker) count(o eval.Outcome) {
	t.done++
	if o.Score == nil {
		t.failed++
	}
	k := [2]string{o.Task, o.Policy}
	o.Row, o.Pred = nil, "" // only scores are needed from here on
	t.cells[k] = append(t.cells[k], o)
}

// Missing are the policies that a sample still lacks.
func (t *Tracker) Missing(s eval.Sample) []string {
	var out []string
	for _, p := range t.f.options.Policies {
		if !t.f.Done(eval.Key{Task: s.Task, ID: s.ID, Policy: p}) {
			out = append(out, p)
		}
	}
	return out
}

// Add keeps an outcome and reports progress.
func (t *Tracker) Add(o eval.Outcome) error {
	if err := t.f.Append(o); err != nil {
		return err
	}
	t.count(o)
	if t.onProgress != nil {
		p := Progress{Done: t.done, Total: t.total, Task: o.Task, Tasks: len(t.tasks), Failed: t.failed,
			Score: ScoreOf(t.suite.Metric(o.Task), t.cells[[2]string{o.Task, o.Policy}])}
		for i, task := range t.tasks {
			if task == o.Task {
				p.Task0 = i + 1
			}
		}
		t.onProgress(p)
	}
	if time.Since(t.written) < resultsEvery {
		return nil
	}
	_, err := t.write()
	return err
}

// Done and Total count outcomes.
func (t *Tracker) Done() (done, total int) { return t.done, t.total }

// Finish writes results.json and prediction files from all outcomes.
func (t *Tracker) Finish() (*Results, error) {
	ordered := t.ordered()
	if p, ok := t.suite.(predictor); ok {
		files, err := p.PredictionFiles(t.f.options.Model.Name, ordered)
		if err != nil {
			return nil, err
		}
		for name, data := range files {
			if err := t.f.replace(name, data); err != nil {
				return nil, err
			}
		}
	}
	return t.write()
}

// write writes results.json from what there is.
func (t *Tracker) write() (*Results, error) {
	m, err := t.f.machine()
	if err != nil {
		return nil, err
	}
	res := aggregate(t.f.options, m, t.done == t.total, t.ordered(), t.suite.Metric)
	res.Outcomes = len(t.f.outcomes)
	raw, err := res.encode()
	if err != nil {
		return nil, fmt.Errorf("run: results: %w", err)
	}
	t.written = time.Now()
	return &res, t.f.replace(resultsFile, raw)
}

// machine reads machine.json.
func (f *Folder) machine() (m Machine, err error) {
	raw, err := f.disk.ReadFile(f.path(machineFile))
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		return m, fmt.Errorf("run: %s: %w: %w", machineFile, ErrFolder, err)
	}
	return m, nil
}

// ordered are the outcomes in the order of samples and policies, whatever order workers finished in.
func (t *Tracker) ordered() []eval.Outcome {
	at := map[eval.Key]int{}
	for i, o := range t.f.outcomes {
		at[o.Key()] = i
	}
	var out []eval.Outcome
	for _, s := range t.samples {
		for _, p := range t.f.options.Policies {
			if i, ok := at[eval.Key{Task: s.Task, ID: s.ID, Policy: p}]; ok {
				out = append(out, t.f.outcomes[i])
			}
		}
	}
	return out
}

// Read loads the results and outcomes of a run, without taking its lock: of one that goes on those of its last results.json
// (at most resultsEvery old, and an outcome). ErrFolder where outcomes of those results are missing, are there twice, or are no JSON.
func Read(dir string) (*Results, []eval.Outcome, error) {
	f := &Folder{dir: dir}
	raw, err := os.ReadFile(f.path(resultsFile))
	if err != nil {
		return nil, nil, fmt.Errorf("run: %s has no results.json yet (a run that has just begun, or was killed? the same 'infer eval' command takes it up): %w", dir, ErrFolder)
	}
	var res Results
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, nil, fmt.Errorf("run: %s: %w: %w", f.path(resultsFile), ErrFolder, err)
	}
	if res.Options.Format != formatVersion {
		return nil, nil, fmt.Errorf("run: %s: format %d, want %d: %w", f.path(resultsFile), res.Options.Format, formatVersion, ErrFolder)
	}
	file, err := os.Open(f.path(samplesFile))
	if err != nil {
		return nil, nil, fmt.Errorf("run: %w: %w", ErrFolder, err)
	}
	defer file.Close()
	outcomes, _, err := readSamples(file, f.path(samplesFile))
	if err != nil {
		return nil, nil, err
	}
	switch n := res.Outcomes; {
	case n > len(outcomes):
		return nil, nil, fmt.Errorf("run: %s has %d whole outcomes, results.json was made of %d (the same 'infer eval' command runs the others again): %w", f.path(samplesFile), len(outcomes), n, ErrFolder)
	case n > 0:
		outcomes = outcomes[:n] // a run that goes on has written more since
	}
	return &res, outcomes, onlyOnce(outcomes, f.path(samplesFile))
}
