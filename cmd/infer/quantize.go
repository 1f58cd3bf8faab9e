package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"terrace/internal/units"
	"terrace/weights/convert"
	"terrace/weights/imatrix"
)

func init() { register(newQuantize) }

func newQuantize(a *app) *cobra.Command {
	c := &quantizeCommand{app: a}
	cmd := &cobra.Command{
		Use:     "quantize SRC DST --type T",
		Short:   "Write a model as GGUF in another element type",
		Long:    "Write the GGUF file or Hugging Face folder SRC (a path or a model name) as the GGUF file DST. Matrices get the type, vectors and norms stay F32; rows that are no whole blocks of the type get the next larger type that fits, which is said. The mixes give value and down projections, and the output matrix, more bits in some layers, by llama.cpp's rules. --imatrix weighs the errors of each column by what it is multiplied with ('infer imatrix' computes that from a text; llama-imatrix's files are read).",
		Example: "  infer quantize ./Llama-3.1-8B-Instruct llama.gguf --type Q4_K_M\n  infer quantize smollm2:135m smollm2-q8.gguf --type Q8_0\n  infer quantize base.gguf merged.gguf --type Q8_0 --lora adapter\n  infer quantize ./Llama-3.1-8B-Instruct llama.gguf --type IQ4_XS --imatrix imatrix.gguf",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageErrorf("quantize needs SRC and DST, got %d arguments", len(args))
			}
			c.load.model = args[0]
			return c.run(args[1])
		},
	}
	cmd.Flags().StringVar(&c.typeName, "type", "", "F32, F16, BF16, Q8_0, Q6_K, Q4_0 or Q4_K, …: one type for all matrices (also Q3_K, Q4_1, Q5_0, Q5_1, Q5_K); Q3_K_S, Q3_K_M, Q3_K_L, IQ4_XS, IQ4_NL, Q4_K_S, Q4_K_M, Q5_K_S or Q5_K_M: llama.cpp's mixes (required)")
	cmd.Flags().StringVar(&c.imatrix, "imatrix", "", "importance matrix: a file of infer imatrix or llama-imatrix")
	cmd.Flags().BoolVar(&c.force, "force", false, "write over DST where it is there")
	c.load.addLora(cmd)
	return cmd
}

type quantizeCommand struct {
	*app

	load              loadFlags
	typeName, imatrix string
	force             bool
}

func (c *quantizeCommand) run(dst string) error {
	if c.typeName == "" {
		return usageErrorf("quantize needs --type")
	}
	kind, mix, err := convert.ParseKind(c.typeName)
	if err != nil {
		return usageErrorf("--type: %w", err)
	}
	if !kind.Writable() {
		return usageErrorf("--type %s: can be read but not written", kind)
	}
	st, statErr := os.Stat(dst)
	if err := mayWrite(dst, c.force); err != nil {
		return err
	}
	var importance *imatrix.Matrix
	if c.imatrix != "" {
		if importance, err = imatrix.Read(c.imatrix); err != nil {
			return dataErrorf("--imatrix: %w", err)
		}
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
	err = convert.Quantize(c.ctx, l.file.Weights(), dst, convert.Options{
		Type:       kind,
		Mix:        mix,
		Importance: importance,
		Progress:   func(done, total int64) { pb.bytes(filepath.Base(dst), done, total) },
		Notice:     func(text string) { pb.clear(); c.notice("%s", text) },
	})
	pb.clear()
	if err != nil {
		return err
	}
	return c.reportWritten(dst, start)
}

// mayWrite refuses a name where something is, unless it is a file that may be written over.
func mayWrite(path string, force bool) error {
	switch st, err := os.Stat(path); {
	case err == nil && !st.Mode().IsRegular():
		return usageErrorf("%s is there and is no regular file", path)
	case err == nil && !force:
		return usageErrorf("%s is there already: another name, or --force to write over it", path)
	}
	return nil
}

// reportWritten says what a file that was written weighs.
func (c *console) reportWritten(path string, start time.Time) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	c.notice("%s: %s in %.1f s", path, units.FormatBytes(st.Size()), time.Since(start).Seconds())
	return nil
}
