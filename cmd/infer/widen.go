package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"terrace/weights/convert"
)

func init() { register(newWiden) }

type widenCommand struct {
	*app

	load  loadFlags
	to    convert.Wider
	force bool
}

func newWiden(a *app) *cobra.Command {
	c := &widenCommand{app: a}
	cmd := &cobra.Command{
		Use:     "widen MODEL OUT --kv-heads N --head-dim N",
		Short:   "Write a model with the KV cache of a larger one",
		Long:    "Write a model (a path or a name) as a GGUF file whose heads are repeated and padded with zeros: its KV cache has the bytes of a larger model's, its attention is the model's own, and so are its logits up to rounding. So that KV tiers can be measured in the shape of models that do not fit a machine. With fewer --layers the first ones alone are left, and the text is no longer the model's; more attend and add nothing. Of " + strings.Join(convert.WidenArchs, ", ") + "; llama.cpp does not read the file's attention.scale.",
		Example: "  infer widen smollm2:135m wide.gguf --kv-heads 32 --head-dim 128               # 16 KiB a token and layer, as Llama-2-7B\n  infer widen smollm2:135m wide4.gguf --kv-heads 32 --head-dim 128 --layers 4",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageErrorf("widen needs MODEL and OUT, got %d arguments", len(args))
			}
			for _, flag := range []string{"kv-heads", "head-dim", "layers"} {
				if n, _ := cmd.Flags().GetInt(flag); cmd.Flags().Changed(flag) && n < 1 {
					return usageErrorf("--%s is %d, want 1 or more", flag, n)
				}
			}
			c.load.model = args[0]
			return c.run(args[1])
		},
	}
	p := cmd.Flags()
	p.IntVar(&c.to.KVHeads, "kv-heads", 0, "heads of keys and values (default: the model's)")
	p.IntVar(&c.to.HeadDim, "head-dim", 0, "numbers of a head (default: the model's)")
	p.IntVar(&c.to.Layers, "layers", 0, "layers (default: the model's)")
	p.BoolVar(&c.force, "force", false, "write over OUT where it is there")
	return cmd
}

func (c *widenCommand) run(dst string) error {
	st, statErr := os.Stat(dst)
	if err := mayWrite(dst, c.force); err != nil {
		return err
	}
	l, err := c.openFile(&c.load)
	if err != nil {
		return err
	}
	defer l.close()
	if own, err := os.Stat(l.path); err == nil && statErr == nil && os.SameFile(own, st) {
		return usageErrorf("%s is the model that is read: write to another file", dst)
	}
	start, pb := time.Now(), c.newBar()
	err = convert.Widen(c.ctx, l.file.Weights(), dst, c.to, convert.Options{
		Progress: func(done, total int64) { pb.bytes(filepath.Base(dst), done, total) },
		Notice:   func(text string) { pb.clear(); c.notice("%s", text) },
	})
	pb.clear()
	if errors.Is(err, convert.ErrWiden) {
		return usageErrorf("%w", err)
	}
	if err != nil {
		return err
	}
	return c.reportWritten(dst, start)
}
