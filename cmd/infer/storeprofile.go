package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"terrace/engine/shelf"
	"terrace/eval/replay"
	"terrace/policy"
)

// storeProfileCommand is store profile.
type storeProfileCommand struct {
	*app

	load           loadFlags
	store          storeFlags
	quality        contextFlags
	contexts       string
	methods, keeps []string
	maxTokens      int
	asJSON         bool
}

func newStoreProfile(a *app) *cobra.Command {
	c := &storeProfileCommand{app: a}
	cmd := &cobra.Command{
		Use:   "profile --contexts F.jsonl",
		Short: "Measure what compressing each context costs in quality",
		Long: "Asks each context's questions under the whole KV and under each method and share kept, and says how like the answers are: the cosine of sentence embeddings, 1 for the same text. " +
			"The file has {\"id\",\"text\",\"questions\":[…]} a line; where there are no questions the model makes some. 'infer eval --suite contexts --profile' reads what --json prints. " +
			"With --store the whole KV of contexts that are kept there is not computed again, and what is computed is kept.",
		Example: "  infer store profile --contexts contexts.jsonl --methods keydiff,snapkv --keeps 0.5,0.25 --json > profile.json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	c.load.addRun(cmd)
	c.store.add(cmd)
	c.quality.addQuality(cmd)
	p := cmd.Flags()
	p.StringVar(&c.contexts, "contexts", "", "JSONL file of {id, text, questions} (required)")
	p.StringSliceVar(&c.methods, "methods", []string{"keydiff", "knorm", "snapkv"}, "policies that act after the prompt")
	p.StringSliceVar(&c.keeps, "keeps", []string{"0.75", "0.5", "0.25"}, "shares of the KV that are kept")
	p.IntVar(&c.maxTokens, "max-tokens", 32, "tokens of an answer at most")
	p.BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

func (c *storeProfileCommand) run() error {
	if c.contexts == "" || c.maxTokens < 1 {
		return usageErrorf("store profile needs --contexts F.jsonl, and --max-tokens of 1 or more")
	}
	p, err := policy.ParsePlacement("evicpress:methods=" + strings.Join(c.methods, "/") + ",keeps=" + strings.Join(c.keeps, "/"))
	if err != nil {
		return usageErrorf("store profile: %w", err)
	}
	if _, err := c.store.specs(); err != nil {
		return err
	}
	all, err := replay.ReadContexts(c.contexts)
	if err != nil {
		return err
	}
	quality, closeQuality, err := c.openQuality(&c.quality, c.load.threads)
	if err != nil {
		return err
	}
	defer closeQuality()
	c.load.policy = "full"
	l, err := c.openEngine(&c.load, nil)
	if err != nil {
		return err
	}
	defer l.close()
	defer c.store.close(c.app)
	if err := c.useStore(&c.store, l); err != nil {
		return err
	}
	b := &replay.Bench{Reader: shelf.Reader{Engine: l.engine, Tokenizer: l.tok, Quality: quality, MaxTokens: c.maxTokens}, Salt: c.store.salt}
	used := make([]*replay.Context, len(all))
	for i := range all {
		used[i] = &all[i]
	}
	bar := c.newBar()
	profile, err := b.Profile(c.ctx, used, shelf.Configs(p), func(done int) { bar.count("profiling", done, len(used)) })
	bar.done()
	if err != nil {
		return err
	}
	profile.Model = l.name
	if c.asJSON {
		return c.printJSON(profile)
	}
	return c.printQualities(profile, shelf.Configs(p))
}

func (c *storeProfileCommand) printQualities(p *replay.Profile, configs []policy.Config) error {
	w := c.newTable()
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
	c.notice("quality is %s", p.Metric)
	return nil
}
