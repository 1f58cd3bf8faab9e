package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"terrace/bench"
	"terrace/model"
	"terrace/weights/imatrix"
)

func init() { register(newImatrix) }

type imatrixCommand struct {
	*app

	load          loadFlags
	kv            kvFlags
	file, out     string
	chunk, chunks int
	processOutput bool
	force, asJSON bool
}

func newImatrix(a *app) *cobra.Command {
	c := &imatrixCommand{app: a}
	cmd := &cobra.Command{
		Use:     "imatrix",
		Short:   "Which columns of the weights matter for a text, for quantize --imatrix",
		Long:    "Read a text in chunks and write the mean square of every weight column's input as an importance matrix (GGUF, as llama-imatrix writes it; llama-quantize reads it too). Take a text like those that the model is for, some hundred thousand characters of it, and the model in F16 or BF16 where you can. The perplexity of the text is printed, as llama-imatrix does.",
		Example: "  infer imatrix -m ./Llama-3.1-8B-Instruct --file calibration.txt --out llama.imatrix.gguf\n  infer quantize ./Llama-3.1-8B-Instruct llama.gguf --type IQ4_XS --imatrix llama.imatrix.gguf",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	c.load.addRun(cmd)
	p := cmd.Flags()
	p.StringVarP(&c.file, "file", "f", "", "the text, - for standard input (required)")
	p.StringVarP(&c.out, "out", "o", "imatrix.gguf", "file that is written")
	p.IntVar(&c.chunk, "chunk", 512, "tokens a chunk")
	p.IntVar(&c.chunks, "chunks", 0, "chunks to read (0: all)")
	p.BoolVar(&c.processOutput, "process-output", false, "the head's inputs too (output.weight, where the model has one)")
	p.BoolVar(&c.force, "force", false, "write over the file where it is there")
	p.BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

func (c *imatrixCommand) run() error {
	if c.file == "" {
		return usageErrorf("imatrix needs --file")
	}
	if c.load.backend != "native" {
		return usageErrorf("imatrix runs on the native backend, not on %s", c.load.backend)
	}
	if err := mayWrite(c.out, c.force); err != nil {
		return err
	}
	l, ids, err := c.openForText(c.file, &c.load, &c.kv)
	if err != nil {
		return err
	}
	defer l.close()
	collector := imatrix.NewCollector()
	l.model.Inputs = func(w *model.Linear, x []float32) error {
		t := w.Tensor
		if !strings.HasPrefix(t.Name, "blk.") && (t.Name != "output.weight" || !c.processOutput) {
			return nil
		}
		if len(t.Shape) == 3 {
			return collector.Add(t.Name, w.From/t.Shape[1], t.Shape[0], w.Cols, x)
		}
		return collector.Add(t.Name, 0, 1, w.Cols, x)
	}
	start, bar := time.Now(), c.newBar()
	o := perplexityOptions(l, c.chunk, c.chunks, bar)
	p, err := bench.Perplex(c.ctx, l.engine, ids, o)
	bar.done()
	if err != nil {
		return err
	}
	m, err := collector.Matrix([]string{filepath.Base(c.file)}, len(p.Chunks), c.chunk)
	if err != nil {
		return err
	}
	if err := m.Write(c.out); err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(map[string]any{"out": c.out, "entries": len(m.Names()), "chunks": len(p.Chunks), "tokens": len(p.Chunks) * c.chunk, "ppl": p.PPL})
	}
	fmt.Fprintf(c.stdout, "%d tensors over %d tokens, perplexity %.4f\n", len(m.Names()), len(p.Chunks)*c.chunk, p.PPL)
	return c.reportWritten(c.out, start)
}
