package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"terrace"
	"terrace/engine"
	"terrace/engine/fit"
	"terrace/internal/units"
)

func init() { register(newFit) }

type fitCommand struct {
	*app

	load   loadFlags
	memory string
	asJSON bool
}

func newFit(a *app) *cobra.Command {
	c := &fitCommand{app: a}
	cmd := &cobra.Command{
		Use:     "fit [MODEL]",
		Short:   "What fits: weights, KV cache, buffers, longest context",
		Long:    "Compute from the model's shape what it needs for --context tokens without a policy (layers with a sliding window keep what later tokens read), and with --memory the longest context that fits. Where the weights do not fit, it says how --memory would divide the memory; exit code 4 where not even that works.",
		Example: "  infer fit gemma3:270m --memory 1GiB",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("fit takes one model (%d given)", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				c.load.model = args[0]
			}
			return c.run()
		},
	}
	c.load.addRun(cmd)
	p := cmd.Flags()
	p.StringVar(&c.memory, "memory", "", "memory to fit into, such as 4GiB (default: what this machine has free)")
	p.BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

func (c *fitCommand) run() error {
	c.load.windowOnly = true // as sessions without a policy run
	o, err := c.load.options()
	if err != nil {
		return err
	}
	memory := int64(0)
	if c.memory != "" {
		if memory, err = units.ParseBytes(c.memory); err != nil || memory <= 0 {
			return usageErrorf("--memory %s: want a size such as 4GiB", c.memory)
		}
	}
	l, err := c.openFile(&c.load)
	if err != nil {
		return err
	}
	defer l.close()
	if l.model, err = l.file.Model(); err != nil {
		return err
	}
	fit, err := l.file.Fit(o, memory)
	if err != nil {
		return err
	}
	plan, streams, noPlan := l.planned(o, fit)
	switch {
	case c.asJSON && streams:
		err = c.printJSON(struct {
			fitReport
			Plan terrace.Plan `json:"plan"`
		}{fit, plan})
	case c.asJSON:
		err = c.printJSON(fit)
	default:
		if err = c.printFit(l, fit); err == nil && streams {
			err = c.printPlan(plan)
		}
	}
	if err == nil && noPlan != nil {
		return noPlan
	}
	if err == nil && fit.LongestContext < 1 && !streams {
		return fmt.Errorf("fit: %s needs %s before the first token, %s given: %w", l.name, units.FormatBytes(fit.WeightsBytes+fit.BuffersBytes), units.FormatBytes(fit.MemoryBytes), engine.ErrMemory)
	}
	return err
}

func (c *fitCommand) printFit(l *loaded, r fit.Report) error {
	w := c.newTable()
	fmt.Fprintf(w, "weights\t%s (mapped from the file)\n", units.FormatBytes(r.WeightsBytes))
	fmt.Fprintf(w, "buffers\t%s (estimate: activations of a pass, unpacked weight panels)\n", units.FormatBytes(r.BuffersBytes))
	fmt.Fprintf(w, "KV cache\t%s a token, %s for the context of %d\n", units.FormatBytes(r.KVBytesPerToken), units.FormatBytes(r.KVBytesAtContext), r.ContextTokens)
	if r.StateBytes > 0 {
		fmt.Fprintf(w, "state\t%s a text beside its KV, whatever its length\n", units.FormatBytes(r.StateBytes))
	}
	fmt.Fprintf(w, "memory\t%s\n", units.FormatBytes(r.MemoryBytes))
	fmt.Fprintf(w, "longest context\t%d tokens (the model was trained for %d)\n", r.LongestContext, l.model.Context)
	return w.Flush()
}

// fitReport is embedded in what is printed.
type fitReport = fit.Report

// planned is how memory would be divided where the whole model does not fit; err says that not even a part of it does.
func (l *loaded) planned(o terrace.Options, r fit.Report) (p terrace.Plan, streams bool, err error) {
	if r.LongestContext > 0 || o.Backend != "" && o.Backend != "native" || len(l.adapters) > 0 {
		return p, false, nil
	}
	p, err = l.file.Plan(o, r.MemoryBytes)
	return p, err == nil, err
}

// printPlan says what --memory would do.
func (c *fitCommand) printPlan(p terrace.Plan) error {
	fmt.Fprintf(c.stdout, "with weights read as they are needed (--memory, docs/weights.md): %s\n", p)
	if p.StepBytes > 0 {
		fmt.Fprintf(c.stdout, "a token reads about %s", units.FormatBytes(p.StepBytes))
		if p.TokensPerS > 0 {
			fmt.Fprintf(c.stdout, ": at most %.1f tokens/s from this disk", p.TokensPerS)
		} else {
			fmt.Fprint(c.stdout, " (infer profile measures the disk)")
		}
		fmt.Fprintln(c.stdout)
	}
	return nil
}
