package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"terrace"
	"terrace/engine"
	"terrace/engine/fit"
	"terrace/engine/tier"
	"terrace/internal/units"
	"terrace/policy"
)

func init() { register(newFit) }

type fitCommand struct {
	*app

	load   loadFlags
	kv     kvFlags
	batch  int
	answer int
	memory string
	asked  bool // a context, tiers, a policy or a batch were named: the answer is yes or no
	asJSON bool
}

func newFit(a *app) *cobra.Command {
	c := &fitCommand{app: a}
	cmd := &cobra.Command{
		Use:   "fit [MODEL]",
		Short: "What fits: weights, KV cache, buffers, longest context",
		Long: "Compute from the model's shape what the process needs for --context tokens (layers with a sliding window keep what later tokens read), and the longest context that fits --memory. " +
			"A model that is not here is not fetched: its files' headers are. With --context, --tier, --policy or --batch the answer is yes or no, exit code 0 or 4: do so many texts of so many tokens fit; " +
			"a policy that drops tokens does so once it has read the prompt, which must fit whole. Where the weights do not fit, it says how --memory would divide the memory; exit code 4 where not even that works.",
		Example: "  infer fit gemma3:270m --memory 1GiB\n" +
			"  infer fit hf:unsloth/Qwen3-8B-GGUF:Q4_K_M -c 32k --memory 16GiB --kv-type int8\n" +
			"  infer fit smollm2 -c 8k --batch 4 --tier host=64MiB --tier ssd=/tmp/kv,4GiB --policy quest",
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
			for _, name := range []string{"context", "ctx-size", "tier", "policy", "batch"} {
				c.asked = c.asked || cmd.Flags().Changed(name)
			}
			return c.run()
		},
	}
	c.load.addRun(cmd)
	c.kv.add(cmd)
	p := cmd.Flags()
	p.IntVar(&c.batch, "batch", 1, "texts at a time, which share the memory")
	p.IntVarP(&c.answer, "max-tokens", "n", 0, "of --context, tokens that are generated: the others are the prompt (default: all are)")
	p.StringVar(&c.memory, "memory", "", "memory to fit into, such as 4GiB (default: what this machine has free)")
	p.BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

// options are those of the model, and the memory that it is to fit into; 0 = what is free.
func (c *fitCommand) options() (o terrace.Options, memory int64, err error) {
	if c.batch < 1 {
		return o, 0, usageErrorf("--batch %d: want 1 or more", c.batch)
	}
	if c.answer < 0 {
		return o, 0, usageErrorf("--max-tokens %d: want 0 or more", c.answer)
	}
	if _, err := policy.Parse(c.kv.policy); err != nil {
		return o, 0, usageErrorf("--policy %s: %v", c.kv.policy, err)
	}
	if _, err := parseTiers(c.kv.tiers); err != nil {
		return o, 0, err
	}
	c.load.windowOnly = c.kv.policy == "" // as sessions without a policy run
	c.load.policy, c.load.texts = c.kv.policy, c.batch
	if o, err = c.load.options(); err != nil {
		return o, 0, err
	}
	o.Tiers = c.kv.tiers
	if c.memory != "" {
		if memory, err = units.ParseBytes(c.memory); err != nil || memory <= 0 {
			return o, 0, usageErrorf("--memory %s: want a size such as 4GiB", c.memory)
		}
	}
	return o, memory, nil
}

func (c *fitCommand) run() error {
	o, memory, err := c.options()
	if err != nil {
		return err
	}
	l, err := c.openShape(&c.load)
	if err != nil {
		return err
	}
	defer l.close()
	if memory > 0 { // as commands with --memory do before they divide it
		debug.FreeOSMemory()
		forgetProgram()
	}
	r, err := l.file.Fit(o, memory)
	if err != nil {
		return err
	}
	answer := fitAnswer{fitReport: r, Headers: !l.whole}
	plan, streams, noPlan := l.planned(o, r, memory > 0)
	if streams {
		answer.Plan = &plan
	}
	switch {
	case c.asked && noPlan != nil:
		answer.Fits, answer.why = new(bool), noPlan.Error()
	case c.asked:
		if err := c.judge(l, o, &answer, plan); err != nil {
			return err
		}
	}
	if c.asJSON {
		err = c.printJSON(answer)
	} else {
		err = c.printFit(l, &answer)
	}
	switch {
	case err != nil:
		return err
	case noPlan != nil:
		return noPlan
	case r.LongestContext < 1 && !streams:
		return fmt.Errorf("fit: %s needs %s before the first token, %s given: %w", l.name, units.FormatBytes(r.ProgramBytes+r.WeightsBytes+r.BuffersBytes), units.FormatBytes(r.MemoryBytes), engine.ErrMemory)
	case answer.Fits != nil && !*answer.Fits:
		return fmt.Errorf("fit: %s: %s: %w", l.name, answer.why, engine.ErrMemory)
	}
	return nil
}

// fitAnswer is what is printed.
type fitAnswer struct {
	fitReport
	Policy      string        `json:"policy,omitempty"`
	Fits        *bool         `json:"fits,omitempty"`                // where it was asked
	LongestText int           `json:"longest_text_tokens,omitempty"` // under the policy and the tiers, for each text
	Headers     bool          `json:"headers_only,omitempty"`        // the model is not here: its headers were read
	Plan        *terrace.Plan `json:"plan,omitempty"`                // where the weights do not fit

	why string
}

// judge says whether the texts that were asked for fit.
func (c *fitCommand) judge(l *loaded, o terrace.Options, a *fitAnswer, plan terrace.Plan) error {
	fixed := a.ProgramBytes + a.WeightsBytes + a.BuffersBytes + int64(a.Texts)*a.TablesBytes
	room := a.MemoryBytes - fixed
	if plan.MemoryBytes > 0 {
		room = plan.KVBytes
	}
	longest, err := l.file.LongestText(o, room, c.answer)
	if err != nil {
		return err
	}
	fits := longest >= a.ContextTokens
	a.why = fmt.Sprintf("%d tokens fit at most, %d are asked for", longest, a.ContextTokens)
	if a.Texts > 1 {
		a.why = fmt.Sprintf("%d tokens of each of %d texts fit at most, %d are asked for", longest, a.Texts, a.ContextTokens)
	}
	if tiers, err := parseTiers(c.kv.tiers); err != nil {
		return err
	} else if host := tier.HostBytes(tiers); host > 0 {
		if a.TotalBytes = fixed + host; a.TotalBytes > a.MemoryBytes && plan.MemoryBytes == 0 {
			fits = false
			a.why = fmt.Sprintf("the process needs %s beside its tier's %s, %s is given", units.FormatBytes(fixed), units.FormatBytes(host), units.FormatBytes(a.MemoryBytes))
		}
	}
	a.Fits, a.LongestText, a.Policy = &fits, longest, c.kv.policyName()
	return nil
}

// openShape opens a model as far as its shape; one that is not here is not fetched, where its source gives its headers.
func (c *fitCommand) openShape(f *loadFlags) (*loaded, error) {
	l, err := c.openFileAs(f, terrace.OutlineFile)
	if err != nil {
		return nil, err
	}
	if l.model, err = l.file.Model(); err == nil && l.whole {
		err = c.openTokenizer(l, "")
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (c *fitCommand) printFit(l *loaded, r *fitAnswer) error {
	w := c.newTable()
	fmt.Fprintf(w, "weights\t%s (mapped from the file)\n", units.FormatBytes(r.WeightsBytes))
	fmt.Fprintf(w, "process\t%s (program, tokenizer, metadata)\n", units.FormatBytes(r.ProgramBytes))
	fmt.Fprintf(w, "buffers\t%s (estimate: activations of a pass, unpacked weight panels)\n", units.FormatBytes(r.BuffersBytes))
	fmt.Fprintf(w, "KV cache\t%s a token, %s for the context of %d, tables %s\n", units.FormatBytes(r.KVBytesPerToken), units.FormatBytes(r.KVBytesAtContext), r.ContextTokens, units.FormatBytes(r.TablesBytes))
	if r.StateBytes > 0 {
		fmt.Fprintf(w, "state\t%s a text beside its KV, whatever its length\n", units.FormatBytes(r.StateBytes))
	}
	fmt.Fprintf(w, "in all\t%s for %d at a time, of %s\n", units.FormatBytes(r.TotalBytes), r.Texts, units.FormatBytes(r.MemoryBytes))
	if r.Fits == nil {
		fmt.Fprintf(w, "longest context\t%d tokens (the model was trained for %d)\n", r.LongestContext, l.model.Context)
	}
	if r.Headers {
		fmt.Fprintf(w, "the model\tis not here: its headers were read\n")
	}
	if r.Fits != nil && *r.Fits {
		fmt.Fprintf(w, "fits\tyes: %d tokens, under policy %s; at most %d\n", r.ContextTokens, r.Policy, r.LongestText)
	} else if r.Fits != nil {
		fmt.Fprintf(w, "fits\tno: %s\n", r.why)
	}
	if err := w.Flush(); err != nil || r.Plan == nil {
		return err
	}
	return c.printPlan(*r.Plan)
}

// fitReport is embedded in what is printed.
type fitReport = fit.Report

// planned is how --memory would divide the memory, where it is given and where the whole model does not fit what is free; err says that not
// even a part of it does, streams that a part of it has to be read as it is needed.
func (l *loaded) planned(o terrace.Options, r fit.Report, given bool) (p terrace.Plan, streams bool, err error) {
	if !given && r.LongestContext > 0 || o.Backend != "" && o.Backend != "native" || len(l.adapters) > 0 {
		return p, false, nil
	}
	p, err = l.file.Plan(o, r.MemoryBytes)
	return p, err == nil && (p.StepBytes > 0 || r.LongestContext == 0), err
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
