// Package placements evaluates placements of kept contexts: one replay of a trace under each (eval/replay), taken up where it was stopped.
//
// It owns what a run folder of such an evaluation has beside samples and results: the answers that quality is measured against, and the
// profile from which compressing placements choose; the empty stores that each placement gets; and the search for the rate of arrivals
// that each sustains. The loop over arrivals is replay's, the folder's files run's, what lies where the placement's. It opens no model and
// never prints: whoever runs it is told through Progress.
//
// Concurrency: one run at a time on an engine.
package placements

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"terrace/engine/prefixcache"
	"terrace/engine/shelf"
	"terrace/eval"
	"terrace/eval/replay"
	evalrun "terrace/eval/run"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// ErrUnfit is of an engine whose contexts cannot be kept.
var ErrUnfit = errors.New("contexts cannot be kept")

// Placement is a placement, and the text that named it, by which results know it.
type Placement struct {
	Text string
	policy.Placement
}

// Run is an evaluation.
type Run struct {
	Bench  *replay.Bench // with an engine, a tokenizer and a quality
	Model  string        // its name, by which stores know its contexts
	Folder *evalrun.Folder

	Placements []Placement
	Contexts   []replay.Context
	Trace      []replay.Arrival
	Stores     []contexts.Spec  // fastest first; each placement gets stores of its own below the folders of these
	Store      contexts.Options // of all of them
	Profile    string           // file of the qualities of compressed contexts; "" = that of the run folder, else measured

	Speed    float64 // divides the times of arrival; 0 = each request comes when the last is done
	SkipIdle bool    // arrivals are not waited for where nobody is served
	// Objective is what a sustained rate has to keep; without a TTFT no rate is searched.
	Objective replay.Objective

	Progress Progress
}

// Progress is told how far a run is; all are called from the run's own goroutine.
type Progress struct {
	Notice func(line string)
	Count  func(label string, done, total int) // done of what label names
	Done   func()                              // what was counted has ended, well or not
}

// Do replays the placements that the folder lacks, searches the rates that they sustain, and writes results.json.
func (r *Run) Do(ctx context.Context) (*evalrun.Results, error) {
	replays, err := r.Folder.Replays()
	if err != nil {
		return nil, err
	}
	whole, err := r.references(ctx)
	if err != nil {
		return nil, err
	}
	profile, err := r.profile(ctx)
	if err != nil {
		return nil, err
	}
	for i, p := range r.Placements {
		if replays.Done(p.Text) {
			continue
		}
		use, err := r.replay(ctx, i, p.Text, whole, profile, replay.Options{Speed: r.Speed, SkipIdle: r.SkipIdle}, func(o eval.Outcome) error {
			if r.Folder.Done(o.Key()) { // a run that was stopped in this placement begins it again, to have its store
				return nil
			}
			return r.Folder.Append(o)
		})
		if err != nil {
			return nil, err
		}
		if use.Trouble != "" {
			r.Progress.Notice(p.Text + ": " + use.Trouble)
		}
		if err := replays.Keep(p.Text, use); err != nil {
			return nil, err
		}
	}
	if err := r.sustained(ctx, replays, whole, profile); err != nil {
		return nil, err
	}
	return replays.Finish(eval.Metric{Name: r.Bench.Quality.Name(), Kind: eval.Percent}, len(r.Trace)*len(r.Placements))
}

// sustained searches the rate that each placement sustains, where an objective is given.
func (r *Run) sustained(ctx context.Context, replays *evalrun.Replays, whole replay.References, profile *replay.Profile) error {
	if r.Objective.TTFT == 0 {
		return nil
	}
	for i, p := range r.Placements {
		found, err := replay.Sustain(r.Trace, r.Objective, func(speed float64) (eval.RateProbe, error) {
			return replays.Probe(p.Text, speed, func() (eval.RateProbe, error) {
				var outcomes []eval.Outcome
				label := fmt.Sprintf("%s at %.3g times the arrivals", p.Text, speed)
				_, err := r.replay(ctx, i, label, whole, profile, replay.Options{Speed: speed, SkipIdle: true}, func(o eval.Outcome) error {
					outcomes = append(outcomes, o)
					return nil
				})
				return replay.ProbeOf(outcomes), err
			})
		})
		if err != nil {
			return err
		}
		replays.Sustains(p.Text, found)
	}
	return nil
}

// replay replays one placement on empty stores of its own.
func (r *Run) replay(ctx context.Context, i int, label string, whole replay.References, profile *replay.Profile, how replay.Options, emit func(eval.Outcome) error) (*eval.StoreUse, error) {
	defer r.Progress.Done()
	stores, remove, err := r.ownStores(i)
	defer remove()
	if err != nil {
		return nil, err
	}
	o := r.Store
	o.Rule, o.Write = contexts.Rule{Wait: true}, contexts.WritePlaced
	store, err := contexts.Open(ctx, stores, o)
	if err != nil {
		_ = store.Close()
		return nil, err
	}
	defer store.Close()
	if r.Bench.Cache, err = prefixcache.Use(r.Bench.Engine, store, r.Model); err != nil {
		return nil, err
	}
	if why := r.Bench.Cache.Unfit(r.Bench.Engine.Policy()); why != "" && !store.Empty() {
		return nil, fmt.Errorf("placements: %s: %w", why, ErrUnfit)
	}
	how.Salt = fmt.Sprintf("replay %d %d", i, time.Now().UnixNano()) // a shared store has nothing under it
	done := 0
	return r.Bench.Replay(ctx, r.Placements[i].Text, r.Trace, r.Contexts, whole, profile, store, how, func(o eval.Outcome) error {
		done++
		r.Progress.Count(label, done, len(r.Trace))
		return emit(o)
	})
}

// ownStores are the stores of a placement, in new folders, which remove deletes.
func (r *Run) ownStores(i int) (own []contexts.Spec, remove func(), err error) {
	var made []string
	remove = func() {
		for _, dir := range made {
			_ = os.RemoveAll(dir)
		}
	}
	own = slices.Clone(r.Stores)
	for j := range own {
		s := &own[j]
		if s.Kind != "ssd" {
			continue
		}
		if err := os.MkdirAll(s.Place, 0o700); err != nil {
			return nil, remove, fmt.Errorf("--store ssd=%s: %w", s.Place, err)
		}
		dir, err := os.MkdirTemp(s.Place, "replay-")
		if err != nil {
			return nil, remove, fmt.Errorf("--store ssd=%s: %w", s.Place, err)
		}
		made = append(made, dir)
		s.Place = dir
	}
	if r.Placements[i].Kind == policy.PlaceNone {
		own = nil
	}
	return own, remove, nil
}

const (
	qualityFile    = "profile.json"
	referencesFile = "references.json"
)

// references are the answers that quality is measured against: kept from before (the folder is of one model, trace and length of answers),
// or made now.
func (r *Run) references(ctx context.Context) (whole replay.References, err error) {
	if raw, err := os.ReadFile(r.Folder.Path(referencesFile)); err == nil && json.Unmarshal(raw, &whole) == nil && whole.Cover(r.Trace) {
		return whole, nil
	}
	r.Progress.Notice(fmt.Sprintf("answers from the whole KV of %d requests, untimed", len(r.Trace)))
	if whole, err = r.Bench.References(ctx, r.Trace, r.Contexts); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	return whole, r.Folder.WriteFile(referencesFile, append(raw, '\n'))
}

// profile is the quality of every configuration that a placement chooses from: given, kept from before, or measured now; nil where none does.
func (r *Run) profile(ctx context.Context) (*replay.Profile, error) {
	var configs []policy.Config
	for _, p := range r.Placements {
		if p.Kind != policy.PlaceEvicPress {
			continue
		}
		for _, c := range shelf.Configs(p.Placement) {
			if !slices.Contains(configs, c) {
				configs = append(configs, c)
			}
		}
	}
	if len(configs) == 0 {
		return nil, nil
	}
	if r.Profile != "" {
		return replay.ReadProfile(r.Profile)
	}
	if p, err := replay.ReadProfile(r.Folder.Path(qualityFile)); err == nil {
		return p, nil
	}
	var used []*replay.Context
	for i := range r.Contexts {
		if slices.ContainsFunc(r.Trace, func(a replay.Arrival) bool { return a.Context == r.Contexts[i].ID }) {
			used = append(used, &r.Contexts[i])
		}
	}
	cache, err := prefixcache.Use(r.Bench.Engine, &contexts.Store{}, r.Model) // for the sizes of records
	if err != nil {
		return nil, err
	}
	r.Bench.Cache = cache
	r.Progress.Notice(fmt.Sprintf("profiling %d contexts under %d configurations, untimed", len(used), len(configs)))
	p, err := r.Bench.Profile(ctx, used, configs, func(done int) { r.Progress.Count("profiling", done, len(used)) })
	r.Progress.Done()
	if err != nil {
		return nil, err
	}
	p.Model = r.Model
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, err
	}
	return p, r.Folder.WriteFile(qualityFile, append(raw, '\n'))
}
