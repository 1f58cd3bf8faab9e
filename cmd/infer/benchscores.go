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
func (bc *benchCommand) recordScores(kvs []kvFlags) error {
	if len(kvs) != 1 || len(kvs[0].tiers) > 0 || len(bc.load.backends) != 1 || bc.o.Batch != 1 || bc.o.N == 0 || bc.o.D == 0 {
		return usageErrorf("--record-trace without --predict records one text's scores: want one policy without tiers, one backend, batch 1, -n and -d above 0")
	}
	bc.o.P, bc.o.Repeats, bc.o.Continue = 0, 1, false
	var heard func(layer int, scores []float32)
	bc.load.machine = tier.Machine{Scored: func(layer int, scores []float32) {
		if heard != nil {
			heard(layer, scores)
		}
	}}
	cases, err := bc.openBenchCases(kvs)
	defer func() {
		for _, c := range cases {
			c.close()
		}
	}()
	if err != nil {
		return err
	}
	c := cases[0]
	bc.o.Text = c.text
	run, err := bench.Open(bc.ctx, c.l.engine, true, bc.o)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	defer run.Close()
	trace := simulate.NewScoreTrace(bc.o.D, bc.o.N, bc.traceLayers, c.l.model.Layers)
	trace.Model, trace.Policy, trace.Text = c.l.name, c.kv.policyName(), "random tokens"
	if bc.text != "" {
		trace.Text = filepath.Base(bc.text)
	}
	heard = trace.Hear // from here on: the warm-up is over
	if err := run.Repeat(bc.ctx); err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	var b bytes.Buffer
	if err := trace.Write(&b); err != nil {
		return usageErrorf("--policy %s: %v", c.kv.policyName(), err)
	}
	return errors.Join(replace.WriteFile(bc.record, b.Bytes(), 0o644), bc.printScoreTrace(trace))
}

// printScoreTrace says what a score trace is of.
func (bc *benchCommand) printScoreTrace(t *simulate.ScoreTrace) error {
	_, err := fmt.Fprintf(bc.stdout, "%s under %s, %s: %d tokens, %d steps, %d of %d layers\n", t.Model, t.Policy, t.Text, t.Prompt, t.Steps, len(t.Layers), t.Of)
	return err
}
