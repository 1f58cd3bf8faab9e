package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"terrace/bench"
	"terrace/internal/replace"
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

// baseFile holds log-probabilities as float32 rows after a header of magic, vocabulary, chunk and a hash of the ids.
type baseFile struct {
	in  *os.File
	out *replace.File
	w   *bufio.Writer
	err error
}

const baseMagic = "TERRLOG1"

// openBase connects --kl-base and --save-kl-base to the run's options.
func openBase(f *perplexityCommand, l *loaded, o *bench.PerplexityOptions) (*baseFile, error) {
	b := &baseFile{}
	v := l.model.Vocab
	header := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte(baseMagic), uint64(v)), uint64(o.Chunk))
	if f.klBase != "" {
		file, err := os.Open(f.klBase)
		if err != nil {
			return nil, dataErrorf("--kl-base: %v", err)
		}
		b.in = file
		r := bufio.NewReaderSize(file, 1<<20)
		got := make([]byte, len(header))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != string(header) {
			file.Close()
			return nil, dataErrorf("--kl-base %s: not written by --save-kl-base for a vocabulary of %d and chunks of %d", f.klBase, v, o.Chunk)
		}
		row, raw := make([]float64, v), make([]byte, 4*v)
		o.Base = func() ([]float64, error) {
			if _, err := io.ReadFull(r, raw); err != nil {
				return nil, dataErrorf("--kl-base %s: ends early: %v", f.klBase, err)
			}
			for i := range row {
				row[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
			}
			return row, nil
		}
	}
	if f.saveBase == "" {
		return b, nil
	}
	out, err := replace.New(f.saveBase, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--save-kl-base: %w", err)
	}
	b.out, b.w = out, bufio.NewWriterSize(out, 1<<20)
	_, b.err = b.w.Write(header)
	raw := make([]byte, 4*v)
	o.OnLogits = func(logProbs []float64) {
		for i, p := range logProbs {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(float32(p)))
		}
		if _, err := b.w.Write(raw); b.err == nil {
			b.err = err
		}
	}
	return b, nil
}

// close makes a saved base visible when the run went well.
func (b *baseFile) close(keep bool) error {
	if b.in != nil {
		b.in.Close()
	}
	if b.out == nil {
		return nil
	}
	defer b.out.Cleanup()
	if !keep {
		return nil
	}
	if err := b.w.Flush(); b.err == nil {
		b.err = err
	}
	if b.err != nil {
		return fmt.Errorf("--save-kl-base: %w", b.err)
	}
	return b.out.CloseAtomicallyReplace()
}
