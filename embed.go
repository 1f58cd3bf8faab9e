package terrace

import (
	"context"
	"errors"
	"fmt"

	"terrace/model/bert"
)

// Encoder makes embeddings of texts. Close it.
type Encoder struct {
	file *File
	enc  *bert.Encoder
}

// OpenEncoder opens a sentence encoder (BERT, MiniLM) by its name or folder. Of the options Threads and Hub count. Errors are
// OpenFile's; a model that is no encoder is ErrModel too.
func OpenEncoder(ctx context.Context, name string, o Options) (*Encoder, error) {
	file, err := OpenFile(ctx, name, Options{Hub: o.Hub})
	if err != nil {
		return nil, err
	}
	enc, err := bert.Open(file.weights, bert.Options{Threads: o.Threads})
	if err != nil {
		return nil, errors.Join(marked{err, ErrModel}, file.Close())
	}
	return &Encoder{file, enc}, nil
}

// Dim is the length of an embedding.
func (e *Encoder) Dim() int { return e.enc.Hidden }

// Embed gives each text's embedding [Dim], of length 1. A text that is longer than the encoder takes is ErrContext. When ctx ends
// Embed returns its error after the next few texts.
func (e *Encoder) Embed(ctx context.Context, texts ...string) (vectors [][]float32, err error) {
	ids := make([][]int32, len(texts))
	for i, t := range texts {
		if ids[i] = e.enc.Tokens(t); len(ids[i]) > e.enc.MaxTokens {
			return nil, fmt.Errorf("terrace: text %d has %d tokens, the encoder takes %d: %w", i, len(ids[i]), e.enc.MaxTokens, ErrContext)
		}
	}
	if err := e.enc.EmbedEach(ctx, ids, func(_ int, v []float32) { vectors = append(vectors, v) }); err != nil {
		return nil, err
	}
	return vectors, nil
}

// BERT is what computes, the Encoder's to close: ids of texts, cutting them to what it takes.
func (e *Encoder) BERT() *bert.Encoder { return e.enc }

// Close unmaps the encoder.
func (e *Encoder) Close() error {
	e.enc.Close()
	return e.file.Close()
}
