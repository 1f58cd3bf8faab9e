package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"terrace/bench"
	"terrace/engine/tier"
	"terrace/internal/replace"
	"terrace/simulate"
)

// recordScores decodes a text once under a policy and writes what its tokens were worth to it, step by step: bench --record-trace
// without --predict. Nothing is timed.
func (a *app) recordScores(f *benchFlags, kvs []kvFlags) error {
	if len(kvs) != 1 || len(kvs[0].tiers) > 0 || len(f.load.backends) != 1 || f.o.Batch != 1 || f.o.N == 0 || f.o.D == 0 {
		return usageErrorf("--record-trace without --predict records one text's scores: want one policy without tiers, one backend, batch 1, -n and -d above 0")
	}
	f.o.P, f.o.Repeats, f.o.Continue = 0, 1, false
	var heard func(layer int, scores []float32)
	f.load.machine = tier.Machine{Scored: func(layer int, scores []float32) {
		if heard != nil {
			heard(layer, scores)
		}
	}}
	cases, err := a.openBenchCases(f, kvs)
	defer func() {
		for _, c := range cases {
			c.close()
		}
	}()
	if err != nil {
		return err
	}
	c := cases[0]
	f.o.Text = c.text
	run, err := bench.Open(a.ctx, c.l.engine, true, f.o)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	defer run.Close()
	trace := simulate.NewScoreTrace(f.o.D, f.o.N, f.traceLayers, c.l.model.Layers)
	trace.Model, trace.Policy, trace.Text = c.l.name, c.kv.policyName(), "random tokens"
	if f.text != "" {
		trace.Text = filepath.Base(f.text)
	}
	heard = trace.Hear // from here on: the warm-up is over
	if err := run.Repeat(a.ctx); err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	var b bytes.Buffer
	if err := trace.Write(&b); err != nil {
		return usageErrorf("--policy %s: %v", c.kv.policyName(), err)
	}
	return errors.Join(replace.WriteFile(f.record, b.Bytes(), 0o644), a.printScoreTrace(trace))
}

// printScoreTrace says what a score trace is of.
func (a *app) printScoreTrace(t *simulate.ScoreTrace) error {
	_, err := fmt.Fprintf(a.stdout, "%s under %s, %s: %d tokens, %d steps, %d of %d layers\n", t.Model, t.Policy, t.Text, t.Prompt, t.Steps, len(t.Layers), t.Of)
	return err
}
