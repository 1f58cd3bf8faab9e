package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/internal/kernels"
)

func init() { register(newBench) }

type benchFlags struct {
	load     loadFlags
	kv       kvFlags
	o        engine.BenchOptions
	policies []string
	format   string
}

func newBench(a *app) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure prompt processing and generation",
		Long:    "Measure tokens a second with random tokens, after one warm-up: a row for prompt processing (-p > 0) and one for generation (-n > 0), each at depth -d; again for every --policy given.",
		Example: "  infer bench -p 512 -n 64\n  infer bench -m gemma3:270m -p 0 -n 32 -d 8000 -r 3 -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.bench(f) },
	}
	f.load.addRun(cmd)
	p := cmd.Flags()
	p.IntVarP(&f.o.P, "n-prompt", "p", 512, "prompt tokens (0: no such row)")
	p.IntVarP(&f.o.N, "n-gen", "n", 128, "generated tokens (0: no such row)")
	p.IntVarP(&f.o.D, "depth", "d", 0, "tokens in the cache before")
	p.IntVarP(&f.o.Repeats, "repetitions", "r", 5, "measured repeats")
	p.IntVar(&f.o.Batch, "batch", 1, "sequences decoded together")
	p.Uint64Var(&f.o.Seed, "seed", 1, "seed of the random tokens")
	p.StringArrayVar(&f.policies, "policy", nil, "KV policy (repeats: a row each)")
	p.StringArrayVar(&f.kv.tiers, "tier", nil, tierHelp)
	p.StringVarP(&f.format, "output", "o", "table", "table or json")
	return cmd
}

// benchRow is one row of bench -o json.
type benchRow struct {
	Test         string    `json:"test"`
	Model        string    `json:"model"`
	NPrompt      int       `json:"n_prompt"`
	NGen         int       `json:"n_gen"`
	Depth        int       `json:"depth"`
	Threads      int       `json:"threads"`
	Backend      string    `json:"backend"`
	Policy       string    `json:"policy"`
	Batch        int       `json:"batch"`
	TPSMedian    float64   `json:"tps_median"`
	TPSAll       []float64 `json:"tps_all"`
	TTFTMS       float64   `json:"ttft_ms"`
	PeakRSSBytes int64     `json:"peak_rss_bytes"`
	CPU          string    `json:"cpu"`
	Source       string    `json:"source"`
}

func (a *app) bench(f *benchFlags) error {
	if f.format != "table" && f.format != "json" {
		return usageErrorf("-o %s: want table or json", f.format)
	}
	if len(f.policies) == 0 {
		f.policies = []string{"full"}
	}
	var rows []benchRow
	for _, p := range f.policies {
		f.kv.policy = p
		more, err := a.benchOne(f)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	if f.format == "json" {
		return a.printJSON(rows)
	}
	w := tabwriter.NewWriter(a.stdout, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "model\ttest\tpolicy\tthreads\tbatch\tt/s (median)\tttft ms\tpeak MiB\tcpu\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%.1f\t%.1f\t%.0f\t%s\t\n", r.Model, r.Test, r.Policy, r.Threads, r.Batch, r.TPSMedian, r.TTFTMS, float64(r.PeakRSSBytes)/(1<<20), r.CPU)
	}
	return w.Flush()
}

// benchOne measures one policy with an engine of its own. A bench may go deeper than the model was trained for: it is
// about time.
func (a *app) benchOne(f *benchFlags) ([]benchRow, error) {
	load := f.load
	if load.context == "" || load.context == "0" {
		load.context = fmt.Sprint(max(f.o.D+f.o.P, f.o.D+f.o.N, 64))
	}
	quiet := a.quiet
	a.quiet = true
	l, err := a.openKVEngine(&load, &f.kv)
	a.quiet = quiet
	if err != nil {
		return nil, err
	}
	defer l.close()
	measured, err := l.engine.Bench(a.ctx, f.o)
	if err != nil {
		return nil, err
	}
	rows := make([]benchRow, 0, len(measured))
	for _, r := range measured {
		row := benchRow{Test: r.Test, Model: l.name, NPrompt: r.P, NGen: r.N, Depth: r.Depth, Threads: l.engine.Options().Threads,
			Backend: l.engine.Options().Backend, Policy: f.kv.policyName(), Batch: r.Batch, TPSMedian: r.MedianTPS(), TPSAll: r.TPS,
			PeakRSSBytes: peakRSSBytes(), CPU: kernels.Path(), Source: "measured"}
		if len(r.TTFT) > 0 {
			var sum time.Duration
			for _, t := range r.TTFT {
				sum += t
			}
			row.TTFTMS = ms(sum / time.Duration(len(r.TTFT)))
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// noArgs refuses positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no arguments (%q given); see 'infer %s --help'", cmd.Name(), args[0], cmd.Name())
	}
	return nil
}
