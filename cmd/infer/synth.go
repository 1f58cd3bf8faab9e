package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"terrace/internal/kernels/quant"
	"terrace/weights/convert"
)

func init() { register(newSynth) }

type synthCommand struct {
	*app

	spec     convert.Spec
	typeName string
}

func newSynth(a *app) *cobra.Command {
	c := &synthCommand{app: a}
	cmd := &cobra.Command{
		Use:     "synth OUT --arch A --layers N --hidden N",
		Short:   "Write a model of random weights in any shape",
		Long:    "Write a GGUF model of random weights, so that a shape can be timed without its weights. What is left out is chosen as models of that width usually have it; the tokenizer has one token a byte. The same flags and seed give the same file.",
		Example: "  infer synth llama-8b.gguf --arch llama --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256 --context 131072 --type Q4_K",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageErrorf("synth needs OUT, got %d arguments", len(args))
			}
			return c.run(args[0])
		},
	}
	p := cmd.Flags()
	p.StringVar(&c.spec.Arch, "arch", "llama", strings.Join(convert.SpecArchs, ", "))
	p.IntVar(&c.spec.Layers, "layers", 0, "layers (required)")
	p.IntVar(&c.spec.Hidden, "hidden", 0, "width of the residual stream (required)")
	p.IntVar(&c.spec.Heads, "heads", 0, "attention heads (default: hidden/128)")
	p.IntVar(&c.spec.KVHeads, "kv-heads", 0, "heads of keys and values (default: a quarter of heads)")
	p.IntVar(&c.spec.HeadDim, "head-dim", 0, "width of a head (default: hidden/heads)")
	p.IntVar(&c.spec.FFN, "ffn", 0, "inner width of the feed-forward network (default: 3.5 × hidden)")
	p.IntVar(&c.spec.Experts, "experts", 0, "gpt-oss, gemma4, granitehybrid, nemotron_h, deepseek2: experts of a layer")
	p.IntVar(&c.spec.ExpertsUsed, "experts-used", 0, "experts of a token (default: 4)")
	p.IntVar(&c.spec.ExpertFFN, "expert-ffn", 0, "inner width of an expert (default: --ffn)")
	p.IntVar(&c.spec.PerLayer, "per-layer", 0, "gemma4: numbers of a layer's input of each token")
	p.IntVar(&c.spec.SharedKV, "shared-kv", 0, "gemma4: how many last layers read the keys of an earlier one")
	p.IntVar(&c.spec.Vocab, "vocab", 0, "tokens, at least 258 (default: 32000)")
	p.IntVar(&c.spec.Context, "context", 0, "context length (default: 8192)")
	p.BoolVar(&c.spec.Tied, "tied", false, "the output matrix is the embedding")
	p.Uint64Var(&c.spec.Seed, "seed", 1, "seed of the weights")
	p.StringVar(&c.typeName, "type", "Q4_K", "type of the matrices: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K")
	return cmd
}

func (c *synthCommand) run(out string) error {
	kind, err := quant.ParseType(c.typeName)
	if err != nil {
		return usageErrorf("--type: %w", err)
	}
	if !kind.Writable() {
		return usageErrorf("--type %s: can be read but not written", kind)
	}
	if st, err := os.Stat(out); err == nil && !st.Mode().IsRegular() {
		return usageErrorf("%s is there and is no regular file", out)
	}
	c.spec.SetDefaults()
	start, pb := time.Now(), c.newBar()
	err = convert.Synthesize(c.ctx, out, c.spec, convert.Options{
		Type:     kind,
		Progress: func(done, total int64) { pb.bytes(filepath.Base(out), done, total) },
		Notice:   func(text string) { pb.clear(); c.notice("%s", text) },
	})
	pb.clear()
	if errors.Is(err, convert.ErrSpec) {
		return usageErrorf("%w", err)
	}
	if err != nil {
		return err
	}
	return c.reportWritten(out, start)
}
