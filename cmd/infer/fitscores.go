package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"terrace/bench"
	"terrace/engine/filters"
	"terrace/policy"
)

func init() { register(newFitScores) }

type fitScoresCommand struct {
	*app

	load          loadFlags
	kv            kvFlags
	file, out     string
	purpose       string
	o             bench.FitOptions
	changed       func(flag string) bool
	force, asJSON bool
}

func newFitScores(a *app) *cobra.Command {
	c := &fitScoresCommand{app: a}
	cmd := &cobra.Command{
		Use:     "fit-scores [MODEL]",
		Short:   "Train the small map by which kvzap guesses kvzip's scores, or find where queries stand for triattention",
		Long:    "Read a text in chunks as kvzip_plus does, each twice, and train a map a layer from hidden states to the logarithms of its scores: one matrix (ridge regression), or with --width two with GELU between them (AdamW). The file has the form that nvidia/KVzap-FORM-MODEL has on the hub; kvzap:weights=@FILE reads both. Take a text like those that the model is for, of ten thousand tokens and more. Printed is how much of the scores' variance the maps foretell (R²) on the last twentieth of the chunks, which they have not seen. Memory: 4 · hidden size · --sample bytes a chunk and layer. With --for triattention nothing is trained: the file has the mean of each head's queries before RoPE, plane by plane, and their mean length, which triattention:stats=@FILE reads; printed is how concentrated they are (|mean query| over mean length, 1: all the same).",
		Example: "  infer fit-scores smollm2:135m --file book.txt --out smollm2.kvzap.safetensors\n  infer generate -m smollm2:135m -f question.txt --policy kvzap:weights=@smollm2.kvzap.safetensors,budget=30%\n  infer fit-scores -m smollm2:135m --file book.txt --for triattention --out smollm2.queries.safetensors",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("fit-scores takes one model (%d given)", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				c.load.model = args[0]
			}
			c.changed = cmd.Flags().Changed
			return c.run()
		},
	}
	c.load.addRun(cmd)
	p := cmd.Flags()
	p.StringVarP(&c.file, "file", "f", "", "the text, - for standard input (required)")
	p.StringVarP(&c.out, "out", "o", "", "file that is written (default: POLICY"+policy.FilterFile+")")
	p.StringVar(&c.purpose, "for", "kvzap", "the policy: kvzap, or triattention")
	p.IntVar(&c.o.Chunk, "chunk", 1000, "tokens a chunk")
	p.IntVar(&c.o.Chunks, "chunks", 0, "chunks to read (0: all)")
	p.IntVar(&c.o.Sample, "sample", 500, "tokens of each that are learned from")
	p.IntVar(&c.o.Train.Width, "width", 0, "numbers between two matrices (0: one matrix)")
	p.IntVar(&c.o.Train.Epochs, "epochs", 15, "rounds over the tokens, with --width")
	p.Float64Var(&c.o.Train.Rate, "rate", 0.005, "learning rate, with --width")
	p.Uint64Var(&c.o.Train.Seed, "seed", 0, "which tokens are drawn, and first weights")
	p.BoolVar(&c.force, "force", false, "write over the file where it is there")
	p.BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

func (c *fitScoresCommand) run() error {
	c.out = cmp.Or(c.out, c.purpose+policy.FilterFile)
	switch {
	case c.file == "":
		return usageErrorf("fit-scores needs --file")
	case c.purpose != "kvzap" && c.purpose != "triattention":
		return usageErrorf("--for %s: want kvzap or triattention", c.purpose)
	case c.purpose == "triattention" && slices.ContainsFunc(trainFlags, c.changed):
		return usageErrorf("--for triattention trains nothing: leave out --%s", strings.Join(trainFlags, ", --"))
	case !strings.HasSuffix(c.out, policy.FilterFile):
		return usageErrorf("--out %s: want a name that ends with %s, by which policies know it", c.out, policy.FilterFile)
	case c.o.Chunk < 8 || c.o.Chunks < 0 || c.o.Sample < 1 || c.o.Train.Width < 0 || c.o.Train.Epochs < 1 || !(c.o.Train.Rate > 0):
		return usageErrorf("fit-scores wants --chunk from 8, --sample, --epochs and --rate above 0, --chunks and --width from 0")
	}
	if err := mayWrite(c.out, c.force); err != nil {
		return err
	}
	l, ids, err := c.openForText(c.file, &c.load, &c.kv)
	if err != nil {
		return err
	}
	defer l.close()
	start, bar := time.Now(), c.newBar()
	c.o.Threads = orInt(c.load.threads, processors)
	c.o.Done = func(chunks, of, layers int) {
		if layers > 0 {
			bar.count("layers", layers, l.model.Layers)
			return
		}
		bar.count("chunks", chunks, of)
	}
	if c.purpose == "triattention" {
		f, err := bench.FitCenters(c.ctx, l.engine, ids, c.o)
		bar.done()
		if err != nil {
			return err
		}
		return c.writeCenters(f, start)
	}
	f, err := bench.FitScores(c.ctx, l.engine, ids, c.o)
	bar.done()
	if err != nil {
		return err
	}
	if err := filters.Write(c.out, f.Map); err != nil {
		return err
	}
	mean, least, at := foretold(f)
	if c.asJSON {
		return c.printJSON(map[string]any{"out": c.out, "layers": len(f.Map.Layers), "tokens": f.Tokens, "held_out": f.Held, "r2": mean, "r2_least": least, "r2_least_layer": at})
	}
	fmt.Fprintf(c.stdout, "R² %.3f over %d held-out tokens (layer %d, the worst: %.3f), trained on %d\n", mean, f.Held, at, least, f.Tokens)
	return c.reportWritten(c.out, start)
}

// trainFlags belong to maps of kvzap alone.
var trainFlags = []string{"sample", "width", "epochs", "rate", "seed"}

func (c *fitScoresCommand) writeCenters(f *bench.CentersFit, start time.Time) error {
	if err := filters.WriteCenters(c.out, f.Layers); err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(map[string]any{"out": c.out, "layers": len(f.Layers), "tokens": f.Tokens, "concentration": f.Mean, "concentration_least": f.Least, "concentration_least_layer": f.LeastLayer})
	}
	fmt.Fprintf(c.stdout, "concentration %.3f, mean over heads (a head of layer %d, the least: %.3f), of %d tokens\n", f.Mean, f.LeastLayer, f.Least, f.Tokens)
	return c.reportWritten(c.out, start)
}

// foretold is the mean R² over the layers that have a map, and the least with its layer.
func foretold(f *bench.Fitted) (mean, least float64, at int) {
	n := 0
	least = math.Inf(1)
	for i, x := range f.R2 {
		if math.IsNaN(x) {
			continue
		}
		if mean, n = mean+x, n+1; x < least {
			least, at = x, i
		}
	}
	return mean / float64(n), least, at
}
