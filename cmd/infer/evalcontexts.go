package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"terrace/engine/shelf"
	"terrace/eval"
	"terrace/eval/placements"
	"terrace/eval/replay"
	evalrun "terrace/eval/run"
	"terrace/internal/tierspec"
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
	placements.Run

	a *app
	f *contextFlags
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
	r.Bench = &replay.Bench{Reader: shelf.Reader{Engine: l.engine, Tokenizer: l.tok, Quality: quality, MaxTokens: r.f.maxTokens}}
	r.Model, r.Store = l.name, c.storeOptions()
	o, err := r.options(c, l, quality.Name())
	if err != nil {
		return err
	}
	c.made.mayMake(c.out, runFiles...)
	if r.Folder, err = evalrun.Open(c.out, o, thisMachine()); err != nil {
		if errors.Is(err, evalrun.ErrChanged) {
			return usageErrorf("%w", err)
		}
		return err
	}
	defer r.Folder.Close()
	bar := c.newBar()
	r.Progress = placements.Progress{Notice: func(line string) { c.notice("%s", line) }, Count: bar.count, Done: bar.done}
	res, err := r.Do(c.ctx)
	switch {
	case errors.Is(err, placements.ErrUnfit):
		return usageErrorf("--suite contexts: %w", err)
	case err != nil:
		return err
	}
	r.print(res)
	return allFailed(r.Folder.Outcomes())
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
	if r.Stores, err = parseStores(c.stores); err != nil {
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
		if p.Kind != policy.PlaceNone && len(r.Stores) == 0 {
			return usageErrorf("--placement %s needs a --store", text)
		}
		r.Placements = append(r.Placements, placements.Placement{Text: text, Placement: p})
	}
	if r.Contexts, err = replay.ReadContexts(c.contexts); err != nil {
		return err
	}
	r.Speed, r.SkipIdle, r.Profile, r.Objective = c.speed, c.skipIdle, c.profile, replay.Objective{Quality: c.qpsQuality, TTFT: c.qpsTTFT}
	r.Trace, err = replay.ReadTrace(f.load.traceFile, f.suite.limit, r.Contexts)
	return err
}

// options are the run's identity.
func (r *replayRun) options(f *evalCommand, l *loaded, quality string) (evalrun.Options, error) {
	print, err := l.fingerprint()
	if err != nil {
		return evalrun.Options{}, err
	}
	settings := map[string]any{"trace": filepath.Base(f.load.traceFile), "contexts": filepath.Base(r.f.contexts), "requests": len(r.Trace), "speed": r.f.speed, "max_tokens": r.f.maxTokens,
		"stores": r.f.stores, "quality": quality, "data": eval.HashPrompt(nil, r.Trace, r.Contexts)}
	if r.f.skipIdle { // runs made before it was an option go on
		settings["skip_idle"] = true
	}
	m := eval.Model{Name: modelName(l.name), Fingerprint: print, Vocab: l.model.Vocab, Context: l.engine.Options().Context, HasChat: l.tok.HasTemplate()}
	return evalrun.Options{Version: buildLine(), Suite: "contexts", Settings: settings, Policies: r.f.placements, Model: m, Engine: f.identity(), Seed: f.suite.seed}, nil
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
	r.a.notice("results in %s", r.Folder.Path("results.json"))
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
