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

func newSynth(a *app) *cobra.Command {
	var spec convert.Spec
	var typeName string
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
			return a.synth(args[0], spec, typeName)
		},
	}
	p := cmd.Flags()
	p.StringVar(&spec.Arch, "arch", "llama", strings.Join(convert.SpecArchs, ", "))
	p.IntVar(&spec.Layers, "layers", 0, "layers (required)")
	p.IntVar(&spec.Hidden, "hidden", 0, "width of the residual stream (required)")
	p.IntVar(&spec.Heads, "heads", 0, "attention heads (default: hidden/128)")
	p.IntVar(&spec.KVHeads, "kv-heads", 0, "heads of keys and values (default: a quarter of heads)")
	p.IntVar(&spec.HeadDim, "head-dim", 0, "width of a head (default: hidden/heads)")
	p.IntVar(&spec.FFN, "ffn", 0, "inner width of the feed-forward network (default: 3.5 × hidden)")
	p.IntVar(&spec.Experts, "experts", 0, "gpt-oss, gemma4: experts of a layer")
	p.IntVar(&spec.ExpertsUsed, "experts-used", 0, "experts of a token (default: 4)")
	p.IntVar(&spec.ExpertFFN, "expert-ffn", 0, "inner width of an expert (default: --ffn)")
	p.IntVar(&spec.PerLayer, "per-layer", 0, "gemma4: numbers of a layer's input of each token")
	p.IntVar(&spec.SharedKV, "shared-kv", 0, "gemma4: how many last layers read the keys of an earlier one")
	p.IntVar(&spec.Vocab, "vocab", 0, "tokens, at least 258 (default: 32000)")
	p.IntVar(&spec.Context, "context", 0, "context length (default: 8192)")
	p.BoolVar(&spec.Tied, "tied", false, "the output matrix is the embedding")
	p.Uint64Var(&spec.Seed, "seed", 1, "seed of the weights")
	p.StringVar(&typeName, "type", "Q4_K", "type of the matrices: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K")
	return cmd
}

func (a *app) synth(out string, spec convert.Spec, typeName string) error {
	kind, err := quant.ParseType(typeName)
	if err != nil {
		return usageErrorf("--type: %w", err)
	}
	if !kind.Writable() {
		return usageErrorf("--type %s: can be read but not written", kind)
	}
	if st, err := os.Stat(out); err == nil && !st.Mode().IsRegular() {
		return usageErrorf("%s is there and is no regular file", out)
	}
	spec.SetDefaults()
	start, pb := time.Now(), a.newBar()
	err = convert.Synthesize(a.ctx, out, spec, convert.Options{
		Type:     kind,
		Progress: func(done, total int64) { pb.bytes(filepath.Base(out), done, total) },
		Notice:   func(text string) { pb.clear(); a.notice("%s", text) },
	})
	pb.clear()
	if errors.Is(err, convert.ErrSpec) {
		return usageErrorf("%w", err)
	}
	if err != nil {
		return err
	}
	return a.reportWritten(out, start)
}
