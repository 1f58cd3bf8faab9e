package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/engine/shelf"
	"terrace/eval"
	"terrace/eval/replay"
	evalrun "terrace/eval/run"
	"terrace/internal/tierspec"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// contextFlags are those of --suite contexts.
type contextFlags struct {
	contexts           string
	placements, stores []string
	speed              float64
	skipIdle           bool
	qpsQuality         float64
	qpsTTFT            time.Duration
	maxTokens          int
	profile            string
	quality, encoder   string
}

// contextOnly are the flags that only --suite contexts reads; the other suites refuse them.
var contextOnly = []string{"contexts", "placement", "speed", "skip-idle", "qps-ttft", "qps-quality", "max-tokens", "profile", "quality", "encoder"}

func (f *contextFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&f.contexts, "contexts", "", "contexts: JSONL file of {id, text, questions}")
	p.StringArrayVar(&f.placements, "placement", nil, "contexts: how kept contexts are placed (repeats): evicpress:alpha=A,methods=M/M,keeps=K/K, lru, fixed:method=M,keep=K, impress or none")
	p.StringArrayVar(&f.stores, "store", nil, "keep the KV of prompts for later runs, fastest first: "+tierspec.Forms(tierspec.Stored)+", each may end in ,RATE/s (repeats); with --suite contexts a placement has its own below it")
	p.Float64Var(&f.speed, "speed", 1, "contexts: divides the times of arrival; 0: each request comes when the last is done")
	p.BoolVar(&f.skipIdle, "skip-idle", false, "contexts: arrivals are not waited for: where nobody is served, the clock goes on to the next (times are those of the work, as without)")
	p.DurationVar(&f.qpsTTFT, "qps-ttft", 0, "contexts: search the highest rate of arrivals that a placement sustains with a mean TTFT of at most this (250ms), each rate a replay of the trace with --skip-idle; 0: not")
	p.Float64Var(&f.qpsQuality, "qps-quality", 80, "contexts: the mean quality, in percent, that such a rate has to keep")
	p.IntVar(&f.maxTokens, "max-tokens", 32, "contexts: tokens of an answer at most")
	p.StringVar(&f.profile, "profile", "", "contexts: qualities that 'infer store profile' measured (default: measured first, untimed)")
	f.addQuality(cmd)
}

func (f *contextFlags) addQuality(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&f.quality, "quality", "auto", "what likeness of answers is: minilm-cosine, token-f1, or auto (the cosine where its encoder can be had)")
	p.StringVar(&f.encoder, "encoder", defaultEncoder, "encoder of minilm-cosine")
}

// openQuality opens the measure of answers; close it.
func (a *app) openQuality(f *contextFlags, threads int) (shelf.Quality, func(), error) {
	switch f.quality {
	case "token-f1":
		return replay.TokenF1{}, func() {}, nil
	case "auto", "minilm-cosine":
		e, err := a.openEncoder(f.encoder, threads)
		if err == nil {
			return shelf.Cosine{Encoder: e.BERT()}, func() { e.Close() }, nil
		}
		if f.quality != "auto" || a.ctx.Err() != nil {
			return nil, nil, err
		}
		a.notice("quality is token-f1, not minilm-cosine: %s", oneLine(err))
		return replay.TokenF1{}, func() {}, nil
	}
	return nil, nil, usageErrorf("--quality %q: want minilm-cosine, token-f1 or auto", f.quality)
}

// replayRun is an evaluation of placements.
type replayRun struct {
	a          *app
	f          *contextFlags
	bench      *replay.Bench
	specs      []contexts.Spec
	placements []policy.Placement
	all        []replay.Context
	trace      []replay.Arrival
	folder     *evalrun.Folder
	modelName  string
}

// evalContexts replays arrivals under each placement.
func (c *evalCommand) evalContexts(changed func(string) bool) error {
	for _, other := range slices.Concat([]string{"policy", "budget", "tier", "workers", "join", "batch"}, suiteOnly) {
		if changed(other) && other != "limit" {
			return usageErrorf("--%s is not for --suite contexts, which takes --trace, --limit, --%s", other, strings.Join(contextOnly, ", --"))
		}
	}
	r := &replayRun{a: c.app, f: &c.contexts}
	if err := r.check(c); err != nil {
		return err
	}
	quality, closeQuality, err := c.openQuality(r.f, c.load.threads)
	if err != nil {
		return err
	}
	defer closeQuality()
	load := c.load
	load.policy, load.windowOnly, load.traceFile = "full", false, ""
	l, err := c.openEngine(&load, nil)
	if err != nil {
		return err
	}
	defer l.close()
	r.bench = &replay.Bench{Reader: shelf.Reader{Engine: l.engine, Tokenizer: l.tok, Quality: quality, MaxTokens: r.f.maxTokens}}
	r.modelName = l.name
	o, err := r.options(c, l, quality.Name())
	if err != nil {
		return err
	}
	c.made.mayMake(c.out, runFiles...)
	if r.folder, err = evalrun.Open(c.out, o, thisMachine()); err != nil {
		if errors.Is(err, evalrun.ErrChanged) {
			return usageErrorf("%w", err)
		}
		return err
	}
	defer r.folder.Close()
	return r.run(l.engine, quality.Name())
}

// check reads the flags and files.
func (r *replayRun) check(f *evalCommand) (err error) {
	c := r.f
	switch {
	case c.contexts == "" || f.load.traceFile == "" || len(c.placements) == 0 || f.out == "":
		return usageErrorf("--suite contexts needs --trace T.jsonl, --contexts C.jsonl, --placement P and --out DIR")
	case !(c.speed >= 0 && c.speed <= 1e6):
		return usageErrorf("--speed %g: want 0 (each request comes when the last is done) to 1e6", c.speed)
	case c.qpsTTFT < 0 || c.qpsTTFT > 24*time.Hour:
		return usageErrorf("--qps-ttft %v: want 0 (rates are not searched) to 24h", c.qpsTTFT)
	case !(c.qpsQuality >= 0 && c.qpsQuality <= 100):
		return usageErrorf("--qps-quality %g: want 0 to 100 percent", c.qpsQuality)
	case c.maxTokens < 1:
		return usageErrorf("--max-tokens %d: want 1 or more", c.maxTokens)
	case f.suite.limit < 0:
		return usageErrorf("--limit %d: want 0 (all) or more", f.suite.limit)
	}
	if r.specs, err = parseStores(c.stores); err != nil {
		return err
	}
	for i, text := range c.placements {
		p, err := policy.ParsePlacement(text)
		if err != nil {
			return usageErrorf("--placement: %w", err)
		}
		if slices.Contains(c.placements[:i], text) {
			return usageErrorf("--placement %s is given twice", text)
		}
		if p.Kind != policy.PlaceNone && len(r.specs) == 0 {
			return usageErrorf("--placement %s needs a --store", text)
		}
		r.placements = append(r.placements, p)
	}
	if r.all, err = replay.ReadContexts(c.contexts); err != nil {
		return err
	}
	r.trace, err = replay.ReadTrace(f.load.traceFile, f.suite.limit, r.all)
	return err
}

// options are the run's identity.
func (r *replayRun) options(f *evalCommand, l *loaded, quality string) (evalrun.Options, error) {
	print, err := l.fingerprint()
	if err != nil {
		return evalrun.Options{}, err
	}
	settings := map[string]any{"trace": filepath.Base(f.load.traceFile), "contexts": filepath.Base(r.f.contexts), "requests": len(r.trace), "speed": r.f.speed, "max_tokens": r.f.maxTokens,
		"stores": r.f.stores, "quality": quality, "data": eval.HashPrompt(nil, r.trace, r.all)}
	if r.f.skipIdle { // runs made before it was an option go on
		settings["skip_idle"] = true
	}
	m := eval.Model{Name: modelName(l.name), Fingerprint: print, Vocab: l.model.Vocab, Context: l.engine.Options().Context, HasChat: l.tok.HasTemplate()}
	return evalrun.Options{Version: buildLine(), Suite: "contexts", Settings: settings, Policies: r.f.placements, Model: m, Engine: f.identity(), Seed: f.suite.seed}, nil
}

// run replays the placements that the folder lacks.
func (r *replayRun) run(e *engine.Engine, metric string) error {
	replays, err := r.folder.Replays()
	if err != nil {
		return err
	}
	bar := r.a.newBar()
	whole, err := r.references()
	if err != nil {
		return err
	}
	profile, err := r.profiled(e)
	if err != nil {
		return err
	}
	for i, text := range r.f.placements {
		if replays.Done(text) {
			continue
		}
		done := 0
		use, err := r.one(e, i, whole, profile, replay.Options{Speed: r.f.speed, SkipIdle: r.f.skipIdle}, func(o eval.Outcome) error {
			done++
			bar.count(text, done, len(r.trace))
			if r.folder.Done(o.Key()) { // a run that was stopped in this placement begins it again, to have its store
				return nil
			}
			return r.folder.Append(o)
		})
		bar.done()
		if err != nil {
			return err
		}
		if use.Trouble != "" {
			r.a.notice("%s: %s", text, use.Trouble)
		}
		if err := replays.Keep(text, use); err != nil {
			return err
		}
	}
	if err := r.sustained(e, replays, whole, profile); err != nil {
		return err
	}
	res, err := replays.Finish(eval.Metric{Name: metric, Kind: eval.Percent}, len(r.trace)*len(r.f.placements))
	if err != nil {
		return err
	}
	r.print(res)
	return allFailed(r.folder.Outcomes())
}

// sustained searches the rate that each placement sustains, where an objective is given.
func (r *replayRun) sustained(e *engine.Engine, replays *evalrun.Replays, whole replay.References, profile *replay.Profile) error {
	if r.f.qpsTTFT == 0 {
		return nil
	}
	bar := r.a.newBar()
	defer bar.done()
	for i, text := range r.f.placements {
		found, err := replay.Sustain(r.trace, replay.Objective{Quality: r.f.qpsQuality, TTFT: r.f.qpsTTFT}, func(speed float64) (eval.RateProbe, error) {
			return replays.Probe(text, speed, func() (eval.RateProbe, error) {
				var outcomes []eval.Outcome
				_, err := r.one(e, i, whole, profile, replay.Options{Speed: speed, SkipIdle: true}, func(o eval.Outcome) error {
					outcomes = append(outcomes, o)
					bar.count(fmt.Sprintf("%s at %.3g times the arrivals", text, speed), len(outcomes), len(r.trace))
					return nil
				})
				return replay.ProbeOf(outcomes), err
			})
		})
		if err != nil {
			return err
		}
		replays.Sustains(text, found)
	}
	return nil
}

// one replays one placement on empty stores of its own.
func (r *replayRun) one(e *engine.Engine, i int, whole replay.References, profile *replay.Profile, how replay.Options, emit func(eval.Outcome) error) (*eval.StoreUse, error) {
	specs := slices.Clone(r.specs)
	for j := range specs {
		if specs[j].Kind != "ssd" {
			continue
		}
		if err := os.MkdirAll(specs[j].Place, 0o700); err != nil {
			return nil, fmt.Errorf("--store ssd=%s: %w", specs[j].Place, err)
		}
		dir, err := os.MkdirTemp(specs[j].Place, "replay-")
		if err != nil {
			return nil, fmt.Errorf("--store ssd=%s: %w", specs[j].Place, err)
		}
		defer os.RemoveAll(dir)
		specs[j].Place = dir
	}
	if r.placements[i].Kind == policy.PlaceNone {
		specs = nil
	}
	o := r.a.storeOptions()
	o.Rule, o.Write = contexts.Rule{Wait: true}, contexts.WritePlaced
	store, err := contexts.Open(r.a.ctx, specs, o)
	if err != nil {
		_ = store.Close()
		return nil, err
	}
	defer store.Close()
	if r.bench.Cache, err = prefixcache.Use(e, store, r.modelName); err != nil {
		return nil, err
	}
	if why := r.bench.Cache.Unfit(e.Policy()); why != "" && !store.Empty() {
		return nil, usageErrorf("--suite contexts: %s", why)
	}
	how.Salt = fmt.Sprintf("replay %d %d", i, time.Now().UnixNano()) // a shared store has nothing under it
	return r.bench.Replay(r.a.ctx, r.f.placements[i], r.trace, r.all, whole, profile, store, how, emit)
}

const (
	qualityFile    = "profile.json"
	referencesFile = "references.json"
)

// references are the answers that quality is measured against: kept from before (the folder is of one model, trace and length of answers),
// or made now.
func (r *replayRun) references() (whole replay.References, err error) {
	if raw, err := os.ReadFile(r.folder.Path(referencesFile)); err == nil && json.Unmarshal(raw, &whole) == nil && whole.Cover(r.trace) {
		return whole, nil
	}
	r.a.notice("answers from the whole KV of %d requests, untimed", len(r.trace))
	if whole, err = r.bench.References(r.a.ctx, r.trace, r.all); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	return whole, r.folder.WriteFile(referencesFile, append(raw, '\n'))
}

// profiled is the quality of every configuration that a placement chooses from: given, kept from before, or measured now.
func (r *replayRun) profiled(e *engine.Engine) (*replay.Profile, error) {
	var configs []policy.Config
	for _, p := range r.placements {
		if p.Kind != policy.PlaceEvicPress {
			continue
		}
		for _, c := range shelf.Configs(p) {
			if !slices.Contains(configs, c) {
				configs = append(configs, c)
			}
		}
	}
	if len(configs) == 0 {
		return nil, nil
	}
	if r.f.profile != "" {
		return replay.ReadProfile(r.f.profile)
	}
	if p, err := replay.ReadProfile(r.folder.Path(qualityFile)); err == nil {
		return p, nil
	}
	var used []*replay.Context
	for i := range r.all {
		if slices.ContainsFunc(r.trace, func(a replay.Arrival) bool { return a.Context == r.all[i].ID }) {
			used = append(used, &r.all[i])
		}
	}
	cache, err := prefixcache.Use(e, &contexts.Store{}, r.modelName) // for the sizes of records
	if err != nil {
		return nil, err
	}
	r.bench.Cache = cache
	r.a.notice("profiling %d contexts under %d configurations, untimed", len(used), len(configs))
	bar := r.a.newBar()
	p, err := r.bench.Profile(r.a.ctx, used, configs, func(done int) { bar.count("profiling", done, len(used)) })
	bar.done()
	if err != nil {
		return nil, err
	}
	p.Model = r.modelName
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, err
	}
	return p, r.folder.WriteFile(qualityFile, append(raw, '\n'))
}

// print writes a line a placement.
func (r *replayRun) print(res *evalrun.Results) {
	for _, p := range res.Policies {
		score := 0.0
		if p.Mean != nil {
			score = *p.Mean
		}
		fmt.Fprintf(r.a.stdout, "%-52s quality %6.2f  TTFT mean %7.1f ms, median %7.1f  ITL %6.1f  end %7.1f  hits %s%s\n", p.Policy, score, p.TTFTMean, p.TTFT, p.ITL, p.E2EMean, hitText(p.Hits), rateText(p.Sustained))
	}
	r.a.notice("results in %s", r.folder.Path("results.json"))
}

// rateText is a sustained rate as a line's end.
func rateText(s *eval.SustainedRate) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("  sustains %.3g requests/s at quality %g, TTFT %g ms", s.QPS, s.Floor, s.Objective)
}

func hitText(hits map[string]float64) string {
	var parts []string
	for _, tier := range []string{"host", "ssd", "valkey", "s3", "none"} {
		if share, ok := hits[tier]; ok {
			parts = append(parts, fmt.Sprintf("%s %.0f%%", tier, 100*share))
		}
	}
	return strings.Join(parts, ", ")
}
