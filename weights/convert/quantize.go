package convert

import (
	"bufio"
	"context"
	"fmt"

	"terrace/internal/replace"
	"terrace/weights"
	"terrace/weights/gguf"
)

// writeBufferBytes gathers small tensors and padding into larger writes.
const writeBufferBytes = 1 << 20

// Quantize writes the model src as the GGUF file dst, its matrices in o.Type. dst appears when it is complete; it may be the
// file that src was opened from. Errors wrap ErrType, ErrRange, ErrImportance, weights.ErrNotFinite, weights.ErrFormat, the
// context's or those of the system.
func Quantize(ctx context.Context, src *weights.Model, dst string, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	orders, err := ordersFor(src.Meta(), src.Tensors())
	if err != nil {
		return err
	}
	meta, err := fileMeta(src, o)
	if err != nil {
		return err
	}
	infos := plan(src.Meta(), src.Tensors(), o)
	importance, err := weightsFor(src.Tensors(), infos, o)
	if err != nil {
		return err
	}
	return create(ctx, dst, meta, infos, o, func(w *writer) error {
		for i, t := range src.Tensors() {
			for at, part := range t.Parts() {
				j, err := newJob(part, infos[i], orders[i])
				if err != nil {
					return fmt.Errorf("convert: %w", err)
				}
				j.weigh(importance[i], at, len(t.Parts()))
				if err := w.run(j.info, j.rows, j.cols, j.convert, j.forget); err != nil {
					return err
				}
				part.Drop()
			}
		}
		return src.CheckUnchanged()
	})
}

// create writes a file under a temporary name beside dst and renames it when fill has written all tensors.
func create(ctx context.Context, dst string, meta *gguf.Meta, infos []gguf.Info, o Options, fill func(w *writer) error) error {
	f, err := replace.New(dst, 0o644)
	if err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	defer f.Cleanup() // nothing after the rename
	buffered := bufio.NewWriterSize(f, writeBufferBytes)
	g, err := gguf.NewWriter(buffered, meta, infos)
	if err != nil {
		return fmt.Errorf("convert: %s: %w", dst, err)
	}
	var done, total int64
	for _, info := range infos {
		total += info.SizeBytes()
	}
	w := newWriter(ctx, g, func(n int) {
		if done += int64(n); o.Progress != nil {
			o.Progress(done, total)
		}
	})
	if err := fill(w); err != nil {
		return err
	}
	if err := g.Close(); err != nil {
		return fmt.Errorf("convert: %s: %w", dst, err)
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("convert: %s: %w", dst, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("convert: %s: %w", dst, err)
	}
	return nil
}
