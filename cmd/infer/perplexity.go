package main

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"terrace/bench"
	"terrace/policy"
)

func init() { register(newPerplexity) }

type perplexityCommand struct {
	*app

	load     loadFlags
	kv       kvFlags
	file     string
	chunk    int
	chunks   int
	klBase   string
	saveBase string
	asJSON   bool
}

func newPerplexity(a *app) *cobra.Command {
	c := &perplexityCommand{app: a}
	cmd := &cobra.Command{
		Use:     "perplexity",
		Short:   "Perplexity of a text, as llama-perplexity computes it",
		Long:    "Perplexity of a text: it is cut into chunks that do not overlap, and the second half of each is scored; the first token of a chunk is replaced by BOS where the model adds one. --save-kl-base writes the log-probabilities of this run, --kl-base compares with a run so saved.",
		Example: "  infer perplexity --file wiki.test.raw --chunk 1024 --chunks 16 --json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	c.load.addRun(cmd)
	c.load.addWeights(cmd)
	c.load.addRecordExperts(cmd)
	c.kv.add(cmd)
	p := cmd.Flags()
	p.StringVarP(&c.file, "file", "f", "", "the text, - for standard input (required)")
	p.IntVar(&c.chunk, "chunk", 1024, "tokens a chunk")
	p.IntVar(&c.chunks, "chunks", 0, "chunks to score (0: all)")
	p.StringVar(&c.klBase, "kl-base", "", "log-probabilities to compare with (written by --save-kl-base)")
	p.StringVar(&c.saveBase, "save-kl-base", "", "write the log-probabilities of this run")
	p.BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

func (c *perplexityCommand) run() error {
	if c.file == "" {
		return usageErrorf("perplexity needs --file")
	}
	l, ids, err := c.openForText(c.file, &c.load, &c.kv)
	if err != nil {
		return err
	}
	defer l.close()
	bar := c.newBar()
	o := perplexityOptions(l, c.chunk, c.chunks, bar)
	record, err := c.load.record(c.app, l)
	if err != nil {
		return err
	}
	base, err := openBase(c, l, &o)
	if err != nil {
		return err
	}
	p, err := bench.Perplex(c.ctx, l.engine, ids, o)
	bar.done()
	if err == nil {
		err = record()
	}
	if cerr := base.close(err == nil); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if c.asJSON {
		out := map[string]any{"ppl": p.PPL, "nll": p.NLL, "nll_stderr": p.StdErr, "tokens": p.Tokens, "chunks": p.Chunks, "policy": c.kv.policyName(), "exact": c.load.exact}
		if p.HasBase {
			out["kl"], out["same_top"] = p.KL, p.SameTop
		}
		if u := weightsReport(l.engine); u != nil {
			out["weights"] = u
		}
		return c.printJSON(out)
	}
	fmt.Fprintf(c.stdout, "perplexity %.4f (%d tokens, %.5f ± %.5f nats)\n", p.PPL, p.Tokens, p.NLL, p.StdErr)
	if p.HasBase {
		fmt.Fprintf(c.stdout, "KL from %s: %.6f nats, same top token %.2f %%\n", c.klBase, p.KL, 100*p.SameTop)
	}
	return nil
}

// openForText opens a model for a text file, - for standard input, and returns the text's tokens. Policies that change something are refused.
func (a *app) openForText(file string, load *loadFlags, kv *kvFlags) (*loaded, []int, error) {
	if p, err := policy.Parse(kv.policyName()); err == nil && !p.Causal() {
		return nil, nil, usageErrorf("--policy %s: the text is read as prompts, which it works after: the numbers would be those of full ('infer eval --suite perplexity --policy %s' has it at work)", p, p)
	}
	text, err := a.readText(file)
	if err != nil {
		return nil, nil, err
	}
	if !utf8.ValidString(text) {
		return nil, nil, dataErrorf("%s is not valid UTF-8", file)
	}
	l, err := a.openKVEngine(load, kv)
	if err != nil {
		return nil, nil, err
	}
	ids, err := l.tok.Encode(text, true, false)
	if err != nil {
		l.close()
		return nil, nil, err
	}
	return l, ids, nil
}

// perplexityOptions are those of reading a text in chunks, at most limit of them (0: all), each of which begins as the tokenizer says.
func perplexityOptions(l *loaded, chunk, limit int, bar *bar) bench.PerplexityOptions {
	o := bench.PerplexityOptions{Chunk: chunk, Limit: limit, BOS: -1, OnChunk: func(done, total int) { bar.count("chunks", done, total) }}
	if id, ok := l.tok.BOS(); ok && l.tok.AddsBOS() {
		o.BOS = id
	}
	return o
}

// baseFiles are the files of --kl-base and --save-kl-base.
type baseFiles struct {
	in  *bench.BaseReader
	out *bench.BaseWriter
}

// openBase connects --kl-base and --save-kl-base to the run's options.
func openBase(f *perplexityCommand, l *loaded, o *bench.PerplexityOptions) (b baseFiles, err error) {
	if f.klBase != "" {
		b.in, err = bench.OpenBase(f.klBase, l.model.Vocab, o.Chunk)
		switch {
		case errors.Is(err, bench.ErrBase):
			return b, dataErrorf("--kl-base %s: %w", f.klBase, err)
		case err != nil:
			return b, dataErrorf("--kl-base: %v", err)
		}
		o.Base = func() ([]float64, error) {
			row, err := b.in.Next()
			if err != nil {
				err = dataErrorf("--kl-base %s: %w", f.klBase, err)
			}
			return row, err
		}
	}
	if f.saveBase == "" {
		return b, nil
	}
	if b.out, err = bench.CreateBase(f.saveBase, l.model.Vocab, o.Chunk); err != nil {
		return b, fmt.Errorf("--save-kl-base: %w", err)
	}
	o.OnLogits = b.out.Add
	return b, nil
}

// close makes a saved base visible when the run went well.
func (b baseFiles) close(keep bool) error {
	if b.in != nil {
		b.in.Close()
	}
	if b.out == nil {
		return nil
	}
	if err := b.out.Close(keep); err != nil {
		return fmt.Errorf("--save-kl-base: %w", err)
	}
	return nil
}
