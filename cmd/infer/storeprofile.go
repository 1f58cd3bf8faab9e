package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"terrace/eval/replay"
	"terrace/policy"
)

// storeProfileFlags are those of store profile.
type storeProfileFlags struct {
	load           loadFlags
	store          storeFlags
	quality        contextFlags
	contexts       string
	methods, keeps []string
	maxTokens      int
	asJSON         bool
}

func newStoreProfile(a *app) *cobra.Command {
	f := &storeProfileFlags{}
	cmd := &cobra.Command{
		Use:   "profile --contexts F.jsonl",
		Short: "Measure what compressing each context costs in quality",
		Long: "Asks each context's questions under the whole KV and under each method and share kept, and says how like the answers are: the cosine of sentence embeddings, 1 for the same text. " +
			"The file has {\"id\",\"text\",\"questions\":[…]} a line; where there are no questions the model makes some. 'infer eval --suite contexts --profile' reads what --json prints. " +
			"With --store the whole KV of contexts that are kept there is not computed again, and what is computed is kept.",
		Example: "  infer store profile --contexts contexts.jsonl --methods keydiff,snapkv --keeps 0.5,0.25 --json > profile.json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.storeProfile(f) },
	}
	f.load.addRun(cmd)
	f.store.add(cmd)
	f.quality.addQuality(cmd)
	p := cmd.Flags()
	p.StringVar(&f.contexts, "contexts", "", "JSONL file of {id, text, questions} (required)")
	p.StringSliceVar(&f.methods, "methods", []string{"keydiff", "knorm", "snapkv"}, "policies that act after the prompt")
	p.StringSliceVar(&f.keeps, "keeps", []string{"0.75", "0.5", "0.25"}, "shares of the KV that are kept")
	p.IntVar(&f.maxTokens, "max-tokens", 32, "tokens of an answer at most")
	p.BoolVar(&f.asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) storeProfile(f *storeProfileFlags) error {
	if f.contexts == "" || f.maxTokens < 1 {
		return usageErrorf("store profile needs --contexts F.jsonl, and --max-tokens of 1 or more")
	}
	p, err := policy.ParsePlacement("evicpress:methods=" + strings.Join(f.methods, "/") + ",keeps=" + strings.Join(f.keeps, "/"))
	if err != nil {
		return usageErrorf("store profile: %w", err)
	}
	if _, err := f.store.specs(); err != nil {
		return err
	}
	all, err := replay.ReadContexts(f.contexts)
	if err != nil {
		return err
	}
	quality, closeQuality, err := a.openQuality(&f.quality, f.load.threads)
	if err != nil {
		return err
	}
	defer closeQuality()
	f.load.policy = "full"
	l, err := a.openEngine(&f.load, nil)
	if err != nil {
		return err
	}
	defer l.close()
	defer f.store.close(a)
	if err := a.useStore(&f.store, l); err != nil {
		return err
	}
	b := &replay.Bench{Engine: l.engine, Tokenizer: l.tok, Quality: quality, MaxTokens: f.maxTokens, Salt: f.store.salt}
	used := make([]*replay.Context, len(all))
	for i := range all {
		used[i] = &all[i]
	}
	bar := a.newBar()
	profile, err := b.Profile(a.ctx, used, replay.Configs(p), func(done int) { bar.count("profiling", done, len(used)) })
	bar.done()
	if err != nil {
		return err
	}
	profile.Model = l.name
	if f.asJSON {
		return a.printJSON(profile)
	}
	return a.printQualities(profile, replay.Configs(p))
}

func (a *app) printQualities(p *replay.Profile, configs []policy.Config) error {
	w := a.newTable()
	fmt.Fprint(w, "CONTEXT\tTOKENS\tQUESTIONS")
	for _, c := range configs {
		fmt.Fprintf(w, "\t%s %g", c.Method, c.Keep)
	}
	fmt.Fprintln(w)
	for _, c := range p.Contexts {
		fmt.Fprintf(w, "%s\t%d\t%d", c.ID, c.Tokens, c.Questions)
		for _, config := range configs {
			q, _ := c.Of(config)
			fmt.Fprintf(w, "\t%.3f", q)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	a.notice("quality is %s", p.Metric)
	return nil
}
