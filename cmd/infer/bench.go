package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"terrace/bench"
	"terrace/internal/nearest"
)

func init() { register(newBench) }

type benchCommand struct {
	*app

	load     loadFlags
	kv       kvFlags
	o        bench.Options
	policies []string
	cases    []string
	text     string
	format   string
	predict  bool
	record   string
	hardware string

	atProfile bool

	traceLayers int
}

func newBench(a *app) *cobra.Command {
	bc := &benchCommand{app: a}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure prompt processing and generation",
		Long: `Measure tokens a second with random tokens, after one warm-up: a row for prompt processing (-p > 0) and one for generation (-n > 0),
each at depth -d; again for every --policy or --case, on every --backend given.

A --case is a policy and the tiers that it runs on. Cases and backends are open side by side and take turns, so that each row's ratio, the median
over the repeats of its speed over the first row's, compares what was measured at the same time. Every case with an SSD tier gets a
folder of its own in the directory given. --file takes the tokens from a text: what policies read, and so what tiers move, depends on
it. --continue reads the depth once and lets every repeat of generation go on where the last ended, -n tokens deeper.

Rows of generation on the native backend say how fast steps read the weights, and which part that is of the rate at which the same
threads read the same bytes alone, measured after each repeat: 100 % is what memory allows. KV is not counted.

Each repeat is a line on stderr while the bench runs (not with --quiet); rows of md, csv and jsonl are printed as soon as they are final.`,
		Example: `  infer bench -p 512 -n 64
  infer bench -m gemma3:270m -p 0 -n 32 -d 8000 -r 3 -o json
  infer bench -p 64 -n 8 -r 3 --backend native,gomlx:go
  infer bench -p 0 -n 16 -d 8000 --continue --file book.txt --case "hillinfer:alpha=0.1" \
    --case "hillinfer:alpha=0.1 on host=64MiB ssd=/data/kv,1GiB" --case "full on host=64MiB ssd=/data/kv,1GiB"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return bc.run() },
	}
	bc.load.severally = true
	bc.load.addRun(cmd)
	bc.load.addWeights(cmd)
	p := cmd.Flags()
	p.IntVarP(&bc.o.P, "n-prompt", "p", 512, "prompt tokens (0: no such row)")
	p.IntVarP(&bc.o.N, "n-gen", "n", 128, "generated tokens (0: no such row)")
	p.IntVarP(&bc.o.D, "depth", "d", 0, "tokens in the cache before")
	p.IntVarP(&bc.o.Repeats, "repetitions", "r", 5, "measured repeats")
	p.IntVar(&bc.o.Batch, "batch", 1, "sequences decoded together")
	p.Uint64Var(&bc.o.Seed, "seed", 1, "seed of the random tokens")
	p.StringVar(&bc.text, "file", "", "take the tokens from a text instead")
	p.BoolVar(&bc.o.Continue, "continue", false, "read the depth once; repeats of generation go on from each other")
	p.StringArrayVar(&bc.policies, "policy", nil, "KV policy (repeats: a row each)")
	p.StringArrayVar(&bc.kv.tiers, "tier", nil, tierHelp)
	p.StringArrayVar(&bc.cases, "case", nil, `"POLICY" or "POLICY on TIER TIER…", instead of --policy and --tier (repeats: a row each, measured in turn)`)
	p.BoolVar(&bc.predict, "predict", false, "what each case's steps take, measured and on a model of this host: the rates of its disk or drive, the same policy in memory, and at another depth without a device")
	p.StringVar(&bc.record, "record-trace", "", "write to this file, for infer simulate --fit: with --predict what the measured runs took, call by call; without it what tokens are worth to a policy at each of -n steps behind -d tokens, and measure nothing")
	p.IntVar(&bc.traceLayers, "trace-layers", 0, "with --record-trace, without --predict: so many layers, evenly spaced (0: all)")
	p.StringVar(&bc.hardware, "hardware", "", "with --predict: predict for the host of this file (infer simulate --fit) and measure nothing")
	p.BoolVar(&bc.atProfile, "at-profile", false, "with --predict: on drives, what steps take at the drive's profile alone; of this host only steps in memory are measured")
	p.StringVarP(&bc.format, "output", "o", "auto", "auto (md and a verdict for one case, table for several), table, json, jsonl, md or csv (the last two with llama-bench's columns: mean ± standard deviation)")
	return cmd
}

// kvCases are the policies and tiers to be measured.
func (bc *benchCommand) kvCases() ([]kvFlags, error) {
	var out []kvFlags
	if len(bc.cases) > 0 && (len(bc.policies) > 0 || len(bc.kv.tiers) > 0) {
		return nil, usageErrorf("--case names policy and tiers: --policy and --tier exclude it")
	}
	for _, c := range bc.cases {
		name, tiers, _ := strings.Cut(c, " on ")
		out = append(out, kvFlags{policy: strings.TrimSpace(name), tiers: strings.Fields(tiers)})
	}
	if len(bc.policies) == 0 && len(out) == 0 {
		bc.policies = []string{""} // the model's own
	}
	for _, p := range bc.policies {
		out = append(out, kvFlags{policy: p, tiers: bc.kv.tiers})
	}
	return out, nil
}

func (bc *benchCommand) run() (err error) {
	if !slices.Contains(benchFormats, bc.format) {
		return usageErrorf("-o %s: want %s%s", bc.format, strings.Join(benchFormats, ", "), nearest.Hint(bc.format, benchFormats))
	}
	kvs, err := bc.kvCases()
	if err != nil {
		return err
	}
	for _, b := range bc.load.backends {
		if err := knownBackend(b); err != nil {
			return err
		}
	}
	switch {
	case bc.predict:
		return bc.benchPredict(kvs)
	case bc.record != "":
		return bc.recordScores(kvs)
	}
	cases, err := bc.openBenchCases(kvs)
	defer func() {
		for _, c := range cases {
			c.close()
		}
	}()
	if err != nil {
		return err
	}
	out := bc.benchPrinter(bc.format)
	for _, generation := range []bool{false, true} {
		if !generation && bc.o.P == 0 && bc.o.N > 0 || generation && bc.o.N == 0 {
			continue
		}
		if err := bc.measureCases(cases, generation, bc.o, out.row); err != nil {
			return err
		}
	}
	return out.end()
}

// measureCases measures a row of each case, in turn, and hands each over as soon as its last repeat is done. Each repeat is a line on
// stderr where there are several.
func (bc *benchCommand) measureCases(cases []*benchCase, generation bool, o bench.Options, done func(benchRow) error) error {
	open := make([]*bench.Run, 0, len(cases))
	defer func() {
		for _, b := range open {
			b.Close()
		}
	}()
	for _, c := range cases {
		o.Text = c.text
		b, err := bench.Open(bc.ctx, c.l.engine, generation, o)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		open = append(open, b)
	}
	rounds := max(o.Repeats, 1)
	for round := range rounds {
		for i, b := range open {
			if err := b.Repeat(bc.ctx); err != nil {
				return fmt.Errorf("%s: %w", cases[i].name(), err)
			}
			r := b.Row()
			if rounds*len(open) > 1 {
				bc.notice("%s, round %d of %d: %.2f t/s with %s", r.Test, round+1, rounds, r.TPS[round], cases[i].title())
			}
			if round+1 < rounds {
				continue
			}
			if err := done(cases[i].row(r, open[0].Row())); err != nil {
				return err
			}
		}
	}
	return nil
}

// noArgs refuses positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no arguments (%q given); see 'infer %s --help'", pathOf(cmd), args[0], pathOf(cmd))
	}
	return nil
}
