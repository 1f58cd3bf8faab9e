package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/internal/replace"
	"terrace/weights/safetensors"
)

func init() { register(newKV) }

type kvCommand struct {
	*app

	load      loadFlags
	kv        kvFlags
	idsFile   string
	out       string
	decodeIDs string
	decodeOut string
}

func newKV(a *app) *cobra.Command {
	c := &kvCommand{app: a}
	cmd := &cobra.Command{
		Use:     "kv",
		Short:   "Which positions a policy keeps, and the logits that follow",
		Long:    "Read token ids (a JSON array) under a policy and write which positions every layer and KV head keeps: {\"layers\":[{\"heads\":[[…],…]}]}. With --decode-ids the given ids are then forced, one a step, and --decode-out gets the logits of each step.",
		Example: "  infer kv --ids-file ids.json --policy snapkv:ratio=0.75 --out kept.json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	c.load.addRun(cmd)
	c.kv.add(cmd)
	p := cmd.Flags()
	p.StringVar(&c.idsFile, "ids-file", "", "JSON array of token ids (required)")
	p.StringVar(&c.out, "out", "", "JSON file to write (required)")
	p.StringVar(&c.decodeIDs, "decode-ids", "", "JSON array of ids to force after the prompt")
	p.StringVar(&c.decodeOut, "decode-out", "", "safetensors file for the logits of the forced steps [steps, vocabulary]")
	return cmd
}

// keptLayer lists the positions each KV head of a layer keeps.
type keptLayer struct {
	Heads [][]int32 `json:"heads"`
}

func (c *kvCommand) run() error {
	if c.idsFile == "" || c.out == "" {
		return usageErrorf("kv needs --ids-file and --out")
	}
	if (c.decodeIDs == "") != (c.decodeOut == "") {
		return usageErrorf("--decode-ids and --decode-out go together")
	}
	ids, err := readIDs(c.idsFile)
	if err != nil {
		return err
	}
	var forced []int
	if c.decodeIDs != "" {
		if forced, err = readIDs(c.decodeIDs); err != nil {
			return err
		}
	}
	c.kv.positions = true
	l, err := c.openKVEngine(&c.load, &c.kv)
	if err != nil {
		return err
	}
	defer l.close()
	s, err := l.engine.NewSession(l.engine.Policy())
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Prefill(c.ctx, ids, engine.PrefillHooks{}); err != nil {
		return err
	}
	if err := engine.CheckFinite(s.Logits()); err != nil {
		return l.engine.CheckAfter(err)
	}
	if err := writeKept(c.out, l.engine, s); err != nil {
		return err
	}
	c.noticeKV(c.kv.policyName(), s.KVUse())
	if forced == nil {
		return nil
	}
	return c.forcedSteps(c.decodeOut, l, s, forced)
}

// writeKept writes the positions in the session's cache.
func writeKept(path string, e *engine.Engine, s *engine.Session) error {
	layers := make([]keptLayer, e.Model().Layers)
	for i := range layers {
		layers[i].Heads = [][]int32{}
		for g := range e.Cache()[i].KV.Heads {
			layers[i].Heads = append(layers[i].Heads, append([]int32{}, s.Positions(i, g)...))
		}
	}
	b, err := json.Marshal(map[string]any{"layers": layers})
	if err != nil {
		return err
	}
	return replace.WriteFile(path, append(b, '\n'), 0o644)
}

// forcedSteps reads the given ids one a step and writes the logits of each.
func (c *kvCommand) forcedSteps(path string, l *loaded, s *engine.Session, ids []int) error {
	w, err := safetensors.Create(path, []safetensors.Entry{{Name: "logits", DType: "F32", Shape: []int{len(ids), l.model.Vocab}}})
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, id := range ids {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := s.Decode(id); err != nil {
			return err
		}
		if err := writeLogits(w, s.Logits()); err != nil {
			return l.engine.CheckAfter(err)
		}
	}
	if err := l.engine.CheckModel(); err != nil {
		return err
	}
	return w.Close()
}
