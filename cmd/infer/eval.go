package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/cpuid/v2"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"terrace"
	"terrace/engine"
	"terrace/engine/tier"
	"terrace/eval"
	"terrace/eval/local"
	evalrun "terrace/eval/run"
	"terrace/eval/share"
	"terrace/internal/kernels"
	"terrace/model"
	"terrace/policy"
)

func init() {
	register(newEval)
	dataSentinels = append(dataSentinels, eval.ErrData)
}

// evalCommand is `infer eval`.
type evalCommand struct {
	*app

	load     loadFlags
	suite    suiteFlags
	contexts contextFlags
	policies []string
	budgets  []string
	tiers    []string
	stores   storeFlags
	out      string
	workers  string
	join     bool
	silence  time.Duration
	resume   bool
	list     bool
	batch    int
}

func newEval(a *app) *cobra.Command {
	c := &evalCommand{app: a}
	cmd := &cobra.Command{
		Use:   "eval --suite SUITE --out DIR",
		Short: "Evaluate KV policies on benchmarks, resumably",
		Long: "Evaluate a model under one or more KV policies. Every outcome is one synced line of DIR/samples.jsonl, so the same command " +
			"takes a stopped run up again. More policies and a larger --limit (but of ruler, niah and agreement) join a run that is there; other options for the same folder are refused. DIR/results.json has scores, errors, times and memory; " +
			"'infer compare' shows runs side by side.\n\nSuites: " + suiteHelp(),
		Example: "  infer eval --suite longbench --data data/longbench --tasks hotpotqa,trec --max-context 3500 --policy full --policy snapkv --policy h2o --budget 0.5,0.25 --out runs/a\n" +
			"  infer eval --suite niah --data data/essays --lengths 1k,2k,4k --policy full --policy streaming_llm:budget=0.25 --out runs/niah\n" +
			"  infer compare runs/a --html a.html",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.list {
				return c.listSuites()
			}
			return c.run(func(name string) bool { return chosen(cmd, name) })
		},
	}
	c.load.addRun(cmd)
	c.load.addWeights(cmd)
	c.suite.add(cmd)
	c.contexts.add(cmd)
	p := cmd.Flags()
	p.StringArrayVar(&c.policies, "policy", nil, "KV policy (repeats; default full)")
	p.StringSliceVar(&c.budgets, "budget", nil, "budgets for every policy that names none, e.g. 0.5,0.25")
	p.StringArrayVar(&c.tiers, "tier", nil, tierHelp)
	p.StringVarP(&c.out, "out", "o", "", "folder of the run (required, but for --join)")
	p.StringVar(&c.workers, "workers", "", "share the samples over NATS JetStream at nats://HOST[:PORT]: give the same command everywhere, with --join on all machines but one")
	p.BoolVar(&c.join, "join", false, "with --workers: work for the run that another machine keeps")
	p.DurationVar(&c.silence, "worker-timeout", 30*time.Second, "with --workers: hand a sample to another machine when its own is silent for so long; the same on all")
	p.BoolVar(&c.list, "list", false, "list the suites with their tasks, flags, and where their data come from")
	p.BoolVar(&c.resume, "resume", true, "take up the run that is in the folder; false: refuse a folder that has one")
	p.IntVar(&c.batch, "batch", 1, fmt.Sprintf("samples that decode together, 1 to %d: the same scores in less time, with the KV of so many in memory; times between tokens are the batch's", local.MaxBatch))
	return cmd
}

// chosen reports whether a flag was given for this command: on the command line. The environment and the configuration file hold
// for all commands, of which each takes what it has a use for.
func chosen(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && f.Changed && !filled(f)
}

// eval runs or takes up an evaluation; changed says whether a flag was given.
func (c *evalCommand) run(changed func(flag string) bool) error {
	if c.suite.name == "contexts" {
		return c.evalContexts(changed)
	}
	if err := c.check(); err != nil {
		return err
	}
	policies, err := expandPolicies(c.policies, c.budgets)
	if err != nil {
		return err
	}
	if err := c.mayTakeUp(); err != nil {
		return err
	}
	if policies, err = c.joinPolicies(c.out, policies); err != nil {
		return err
	}
	c.suite.policies = policies
	suite, err := c.suite.open(changed)
	if errors.Is(err, eval.ErrOption) {
		return usageErrorf("%w", err)
	}
	if err != nil {
		return err
	}
	r, l, err := c.openRunner(policies)
	if err != nil {
		return err
	}
	defer l.close()
	defer c.stores.close(c.app)
	defer r.Close()
	o := evalrun.Options{Version: buildLine(), Suite: suite.Name(), Settings: suite.Options(), Policies: policies, Model: r.Model(), Engine: c.identity(), Seed: c.suite.seed}
	if c.batch > 1 {
		o.Batch = c.batch
	}
	if c.join {
		return c.joinEval(o, suite, r)
	}
	c.made.mayMake(c.out, runFiles...)
	folder, err := evalrun.OpenWider(c.out, o, thisMachine(), c.suite.narrower(changed))
	if errors.Is(err, evalrun.ErrChanged) {
		return usageErrorf("%w", err)
	}
	if err != nil {
		return err
	}
	defer folder.Close()
	if n := len(folder.Outcomes()); n > 0 {
		c.notice("%s: taking up a run with %d outcomes", c.out, n)
	}
	bar := c.newEvalBar(o.Suite)
	var res *evalrun.Results
	if c.workers != "" {
		res, err = share.Keep(c.ctx, c.sharing(), folder, suite, r, true, bar.show)
	} else {
		res, err = evalrun.Run(c.ctx, folder, suite, r, bar.show)
	}
	bar.done()
	if errors.Is(err, eval.ErrOption) {
		return usageErrorf("%w", err) // a suite that has to see the tokenizer before it knows
	}
	if err != nil {
		return err
	}
	if err := c.printResults(res, c.out); err != nil {
		return err
	}
	return c.outcome(policies, folder.Outcomes())
}

// runFiles are in the folder of a run before it has an outcome.
var runFiles = []string{"lock", "machine.json", "options.json"}

// mayTakeUp refuses a folder with a run where --resume=false.
func (c *evalCommand) mayTakeUp() error {
	if c.resume || c.out == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(c.out, "samples.jsonl")); err == nil {
		return usageErrorf("--resume=false: %s has a run", c.out)
	}
	return nil
}

// check refuses flags that contradict each other.
func (c *evalCommand) check() error {
	switch {
	case (c.out == "") != c.join:
		return usageErrorf("eval needs --out DIR; --join works for another machine's run and takes none")
	case c.join && c.workers == "":
		return usageErrorf("--join needs --workers nats://HOST")
	case c.silence < time.Second:
		return usageErrorf("--worker-timeout %s: want at least 1s", c.silence)
	case c.batch < 1 || c.batch > local.MaxBatch:
		return usageErrorf("--batch %d: want 1 to %d", c.batch, local.MaxBatch)
	case c.batch > 1 && c.workers != "":
		return usageErrorf("--batch %d: with --workers each machine runs one sample at a time", c.batch)
	case c.batch > 1 && len(c.tiers) > 0:
		return usageErrorf("--batch %d: samples that decode together would share the room of --tier, and fail where one alone does not; leave one of the two out", c.batch)
	}
	return nil
}

// outcome says what a reader of the results should know; the error is that of allFailed.
func (c *evalCommand) outcome(policies []string, outcomes []eval.Outcome) error {
	c.noticeDrops(policies, outcomes)
	return allFailed(outcomes)
}

// allFailed is an error where not one sample was answered: such a run has no score, not a score of zero.
func allFailed(outcomes []eval.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	for _, o := range outcomes {
		if o.Error == "" {
			return nil
		}
	}
	o := outcomes[0]
	return fmt.Errorf("all %d samples failed, the first (%s %s): %s", len(outcomes), o.Task, o.ID, o.Error)
}

// joinEval works for a run that another machine keeps.
func (c *evalCommand) joinEval(o evalrun.Options, suite eval.Suite, r eval.Runner) error {
	n, err := share.Join(c.ctx, c.sharing(), o, suite, r)
	if errors.Is(err, evalrun.ErrChanged) {
		return usageErrorf("%w", err)
	}
	if err != nil {
		return err
	}
	c.notice("the run is finished; %d samples were run here", n)
	return nil
}

func (c *evalCommand) sharing() share.Options {
	return share.Options{URL: c.workers, AckWait: c.silence, Notice: func(line string) { c.notice("%s", line) }}
}

// expandPolicies crosses policies with budgets; policies that name a budget or ratio, and full, are taken as they are.
func expandPolicies(policies, budgets []string) ([]string, error) {
	if len(policies) == 0 {
		policies = []string{"full"}
	}
	var out []string
	seen := map[string]string{} // as given, by what it is
	for _, p := range policies {
		specs := []string{p}
		if len(budgets) > 0 && p != "full" && !strings.Contains(p, "budget=") && !strings.Contains(p, "ratio=") {
			if strings.Contains(p, "+") {
				return nil, usageErrorf("--policy %s: write the budget into a composed policy", p)
			}
			sep := ":"
			if strings.Contains(p, ":") {
				sep = ","
			}
			specs = nil
			for _, b := range budgets {
				specs = append(specs, p+sep+policy.BudgetParam(p)+"="+b)
			}
		}
		for _, s := range specs {
			s, err := policy.ExpandFiles(s, os.ReadFile)
			if err != nil {
				return nil, usageErrorf("--policy %s: %v", p, err)
			}
			parsed, err := policy.Parse(s)
			if err != nil {
				return nil, usageErrorf("--policy %s: %v", s, err)
			}
			if other, ok := seen[parsed.Canonical()]; ok && other == s {
				return nil, usageErrorf("--policy %s is given twice", s)
			} else if ok {
				return nil, usageErrorf("--policy %s is %s in other words", s, other)
			}
			seen[parsed.Canonical()] = s
			out = append(out, s)
		}
	}
	return out, nil
}

// openRunner opens the model and a runner that opens one engine a policy on it.
func (c *evalCommand) openRunner(policies []string) (*local.Runner, *loaded, error) {
	o, err := c.load.options()
	if err != nil {
		return nil, nil, err
	}
	tiers, err := tierList(c.tiers)
	if err != nil {
		return nil, nil, err
	}
	c.stores.stores = c.contexts.stores
	if _, err := c.stores.specs(); err != nil {
		return nil, nil, err
	}
	if err := knownBackend(c.load.backend); err != nil {
		return nil, nil, err
	}
	l, err := c.open(&c.load)
	if err != nil {
		return nil, nil, err
	}
	if err := fitModel(policies, l.model); err != nil {
		l.close()
		return nil, nil, err
	}
	m := eval.Model{Name: l.nameOfAll(), Vocab: l.model.Vocab, Context: o.Context}
	if m.Context == 0 {
		m.Context = l.model.Context
	}
	if m.Fingerprint, err = l.fingerprint(); err != nil {
		l.close()
		return nil, nil, err
	}
	named := filtersOf(policies)
	r := local.New(m, l.tok, func(spec string) (*engine.Engine, error) {
		o := o
		o.Policy, o.Filters = spec, named
		var err error
		if o.Tiers, err = makeRoom(foldersOf(c.tiers, tiers, slices.Index(policies, spec), len(policies)), o.Threads); err != nil {
			return nil, err
		}
		return c.evalEngine(l, o)
	})
	if slices.ContainsFunc(tiers, func(t tier.Tier) bool { return t.Kind == tier.SSD || t.Kind == tier.CSD }) {
		r.OnTiers()
	}
	return r, l, nil
}

// fitModel refuses policies whose options cannot hold for the model: every sample would fail.
func fitModel(policies []string, m *model.Model) error {
	for _, p := range policies {
		spec, err := policy.Parse(p)
		if err != nil {
			return err
		}
		if n := spec.Needs(); len(n.OfModel) > 0 || n.Filters != "" || m.TrainedIndex() != nil {
			continue // its engine knows more of the model
		}
		if _, err := spec.New(policy.Model{Name: m.Name, Layers: m.Cache(), Hidden: m.Hidden, Context: m.Context}); errors.Is(err, policy.ErrModel) {
			return usageErrorf("--policy %s: %w", p, err)
		}
	}
	return nil
}

// filtersOf lists the files of filters that policies name: engines that are opened for one hold prompts that others share.
func filtersOf(policies []string) (files []string) {
	for _, p := range policies {
		if spec, err := policy.Parse(p); err == nil {
			files = append(files, spec.Needs().Filters)
		}
	}
	return files
}

// evalEngine opens an engine on the store that the flags name, which the engines share.
func (c *evalCommand) evalEngine(l *loaded, o terrace.Options) (*engine.Engine, error) {
	one := *l
	if err := c.startEngine(&one, o); err != nil {
		return nil, err
	}
	if err := c.useStore(&c.stores, &one); err != nil {
		return nil, errors.Join(err, one.engine.Close())
	}
	return one.engine, nil
}

// foldersOf gives the engine of policy i its own folder on the SSD tiers where several may be open together: those of the run's
// policies, and full (-1) where a suite compares with it and it is none of them.
func foldersOf(specs []string, tiers []tier.Tier, i, policies int) []string {
	own := slices.Clone(specs)
	for j, t := range tiers {
		if t.Kind == tier.SSD && (policies > 1 || i < 0) {
			t.Place = filepath.Join(t.Place, fmt.Sprintf("eval-%d", i+1))
			own[j] = t.String()
		}
	}
	return own
}

// identity are the engine's options that change results or times.
func (c *evalCommand) identity() map[string]any {
	id := map[string]any{"backend": c.load.backend, "threads": orInt(c.load.threads, processors), "exact": c.load.exact, "context": c.load.context,
		"kv_type": c.load.kvType, "cache_type_k": c.load.ctk, "cache_type_v": c.load.ctv, "page_tokens": c.load.pageTokens, "chunk_tokens": c.load.chunk, "tiers": c.tiers}
	if r := c.load.kvRotate; r != "auto" { // runs made before it was an option go on
		id["kv_rotate"] = r
	}
	if bias := c.load.biased(); bias != "" {
		id["expert_bias"] = bias[1:]
	}
	if len(c.contexts.stores) > 0 {
		id["store"] = strings.Join(c.contexts.stores, " ")
	}
	return id
}

func orInt(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// thisMachine is what machine.json records.
func thisMachine() evalrun.Machine {
	host, _ := os.Hostname()
	return evalrun.Machine{Host: host, CPU: cpuid.CPU.BrandName, Kernels: kernels.Path(), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Command: os.Args, Started: time.Now().UTC().Format(time.RFC3339)}
}

// printResults writes the scores as a table.
func (c *evalCommand) printResults(res *evalrun.Results, dir string) error {
	for _, t := range res.Tasks {
		failed := ""
		if t.Failed > 0 {
			failed = fmt.Sprintf("  %d failed", t.Failed)
		}
		fmt.Fprintf(c.stdout, "%-22s %-36s %9.3f ± %-8.3f n=%-4d%s\n", t.Task, t.Policy, t.Score.Score, t.StdErr, t.N, failed)
	}
	for _, p := range res.Policies {
		if p.Mean != nil && len(res.Tasks) > len(res.Policies) {
			fmt.Fprintf(c.stdout, "%-22s %-36s %9.3f ± %-8.3f\n", "mean of tasks", p.Policy, *p.Mean, p.StdErr)
		}
	}
	c.notice("results in %s", filepath.Join(dir, "results.json"))
	return nil
}

// evalBar is the one progress bar of an evaluation; without a terminal a line a minute.
type evalBar struct {
	a     *app
	suite string
	pb    *progressbar.ProgressBar
	lines *bar // without a terminal
}

func (c *evalCommand) newEvalBar(suite string) *evalBar { return &evalBar{a: c.app, suite: suite} }

func (b *evalBar) show(p evalrun.Progress) {
	if b.a.quiet || !b.a.isTTY(b.a.stderr) {
		if b.lines == nil {
			b.lines = b.a.newBar()
		}
		b.lines.count(fmt.Sprintf("%s, %s", b.suite, p.Task), p.Done, p.Total) // a line a minute
		return
	}
	if b.pb == nil {
		b.pb = progressbar.NewOptions(p.Total, progressbar.OptionSetWriter(b.a.stderr), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	failed := ""
	if p.Failed > 0 {
		failed = fmt.Sprintf(", %d failed", p.Failed)
	}
	b.pb.Describe(fmt.Sprintf("%s: %s (%d/%d) %.2f%s", b.suite, p.Task, p.Task0, p.Tasks, p.Score.Score, failed))
	_ = b.pb.Set(p.Done)
}

func (b *evalBar) done() {
	if b.pb != nil {
		_ = b.pb.Clear()
	}
}
