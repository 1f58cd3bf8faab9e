package terrace

import (
	"context"
	"errors"

	"terrace/model/bert"
	"terrace/weights"
)

// Encoder makes embeddings of texts. Close it.
type Encoder struct {
	file *weights.Model
	enc  *bert.Encoder
}

// OpenEncoder opens a sentence encoder (BERT, MiniLM) by its name or folder. Of the options Threads and Hub count.
func OpenEncoder(ctx context.Context, name string, o Options) (*Encoder, error) {
	file, err := openFile(ctx, name, o.Hub)
	if err != nil {
		return nil, err
	}
	enc, err := bert.Open(file, bert.Options{Threads: o.Threads})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Encoder{file, enc}, nil
}

// Dim is the length of an embedding.
func (e *Encoder) Dim() int { return e.enc.Hidden }

// Embed gives each text's embedding [Dim], of length 1. A text that is longer than the encoder takes is an error.
func (e *Encoder) Embed(ctx context.Context, texts ...string) ([][]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ids := make([][]int32, len(texts))
	for i, t := range texts {
		ids[i] = e.enc.Tokens(t)
	}
	return e.enc.Embed(ids)
}

// Close unmaps the encoder.
func (e *Encoder) Close() error {
	e.enc.Close()
	return e.file.Close()
}
