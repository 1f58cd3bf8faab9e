package bench

import (
	"context"
	"fmt"

	"terrace/engine"
	"terrace/policy"
)

// CentersFit is where a model's queries stand in a text, for triattention.
type CentersFit struct {
	Layers []*policy.Centers // nil of layers that policies do not act on
	Tokens int
	// Mean and Least are the concentration of a head's queries (policy.Centers.Concentration), over all heads, and the lowest with its layer.
	Mean, Least float64
	LeastLayer  int
}

// FitCenters reads a text in chunks, each by itself, and adds up where the queries stand. Of o it uses Chunk, Chunks and Done.
func FitCenters(ctx context.Context, e *engine.Engine, ids []int, o FitOptions) (*CentersFit, error) {
	if o.Chunk == 0 {
		o.Chunk = 1000
	}
	chunks := len(ids) / o.Chunk
	if o.Chunks > 0 {
		chunks = min(chunks, o.Chunks)
	}
	if chunks < 1 || o.Chunk < 3 {
		return nil, fmt.Errorf("bench: %d tokens in chunks of %d, want one chunk at least: %w", len(ids), o.Chunk, ErrShort)
	}
	out := &CentersFit{Tokens: chunks * o.Chunk, Least: 2}
	for c := range chunks {
		layers, err := e.Centers(ctx, ids[c*o.Chunk:(c+1)*o.Chunk])
		if err != nil {
			return nil, err
		}
		if out.Layers == nil {
			out.Layers = layers
		} else {
			for i, x := range layers {
				if x != nil {
					out.Layers[i].Join(x)
				}
			}
		}
		if o.Done != nil {
			o.Done(c+1, chunks, 0)
		}
	}
	heads := 0
	for layer, c := range out.Layers {
		for h := 0; c != nil && h < c.Heads; h++ {
			r := c.Concentration(h)
			if out.Mean, heads = out.Mean+r, heads+1; r < out.Least {
				out.Least, out.LeastLayer = r, layer
			}
		}
	}
	if heads == 0 {
		return nil, fmt.Errorf("bench: no layer of the model keeps all keys: nothing to fit: %w", policy.ErrModel)
	}
	out.Mean /= float64(heads)
	return out, nil
}
