package main

import (
	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/weights/safetensors"
)

func init() { register(newLogits) }

type logitsCommand struct {
	*app

	load    loadFlags
	kv      kvFlags
	idsFile string
	out     string
	all     bool
}

func newLogits(a *app) *cobra.Command {
	c := &logitsCommand{app: a}
	cmd := &cobra.Command{
		Use:     "logits",
		Short:   "Write the logits of a prompt as safetensors",
		Long:    "Read token ids (a JSON array) and write the logits after the last one, or after each with --all, as the float32 tensor \"logits\" [1 or n, vocabulary].",
		Example: "  infer logits --ids-file ids.json --out logits.safetensors --all --exact",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	c.load.addRun(cmd)
	c.kv.add(cmd)
	p := cmd.Flags()
	p.StringVar(&c.idsFile, "ids-file", "", "JSON array of token ids (required)")
	p.StringVar(&c.out, "out", "", "safetensors file to write (required)")
	p.BoolVar(&c.all, "all", false, "logits after every token, not only the last")
	return cmd
}

func (c *logitsCommand) run() error {
	if c.idsFile == "" || c.out == "" {
		return usageErrorf("logits needs --ids-file and --out")
	}
	if err := knownBackend(c.load.backend); err != nil {
		return err
	}
	ids, err := readIDs(c.idsFile)
	if err != nil {
		return err
	}
	l, err := c.openKVEngine(&c.load, &c.kv)
	if err != nil {
		return err
	}
	defer l.close()
	rows := 1
	if c.all {
		rows = len(ids)
	}
	w, err := safetensors.Create(c.out, []safetensors.Entry{{Name: "logits", DType: "F32", Shape: []int{rows, l.model.Vocab}}})
	if err != nil {
		return err
	}
	defer w.Abort()
	s, err := l.engine.NewSession(l.engine.Policy())
	if err != nil {
		return err
	}
	defer s.Close()
	bar := c.newBar()
	hooks := engine.PrefillHooks{Progress: func(done, total int) { bar.count("tokens", done, total) }}
	if c.all {
		hooks.Each = func(_ int, logits []float32) error { return writeLogits(w, logits) }
	}
	err = s.Prefill(c.ctx, ids, hooks)
	bar.done()
	if err != nil {
		return err
	}
	if !c.all {
		if err := writeLogits(w, s.Logits()); err != nil {
			return l.engine.CheckAfter(err)
		}
	}
	return w.Close()
}

// writeLogits writes rows of logits; NaN and infinities are no result.
func writeLogits(w *safetensors.Writer, logits []float32) error {
	if err := engine.CheckFinite(logits); err != nil {
		return err
	}
	return w.WriteFloat32s(logits)
}
