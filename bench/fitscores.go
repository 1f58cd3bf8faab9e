package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"terrace/engine"
	"terrace/engine/scorefit"
	"terrace/policy"
)

// FitOptions say on what maps of kvzap are trained, and how.
type FitOptions struct {
	Chunk   int // tokens of the text that are read at a time; 0 = 1000
	Chunks  int // how many; 0 = as many as the text has
	Sample  int // tokens that are taken of each, drawn from Seed; 0 = 500
	Threads int // layers that are trained at the same time, at least 1
	Train   scorefit.Options
	Done    func(chunks, of, layers int) // after each chunk and each layer; nil = not
}

// Fitted are maps, and how well they do.
type Fitted struct {
	Map    *policy.ScoreMap
	Tokens int       // that they were trained on
	Held   int       // tokens of the last chunks, a twentieth but one at least, that they were not
	R2     []float64 // of each layer, on the held tokens; NaN of layers that policies do not act on
}

// ErrShort is returned by FitScores for a text of fewer than two chunks.
var ErrShort = errors.New("the text is too short")

// leastScored is the first position with a score: those before always stay.
const leastScored = 4

// FitScores trains maps for kvzap on a text: chunks are read as kvzip_plus does, tokens drawn, and each layer's map fitted to the logarithms of
// their scores. Memory: 4·Hidden·Sample bytes a chunk and layer.
func FitScores(ctx context.Context, e *engine.Engine, ids []int, o FitOptions) (*Fitted, error) {
	if o.Chunk == 0 {
		o.Chunk = 1000
	}
	if o.Sample == 0 {
		o.Sample = 500
	}
	chunks := len(ids) / o.Chunk
	if o.Chunks > 0 {
		chunks = min(chunks, o.Chunks)
	}
	if chunks < 2 || o.Chunk <= leastScored {
		return nil, fmt.Errorf("bench: %d tokens in chunks of %d, want two chunks at least: %w", len(ids), o.Chunk, ErrShort)
	}
	cache := e.Cache()
	train, held := make([]scorefit.Data, len(cache)), make([]scorefit.Data, len(cache))
	last := chunks - max(1, chunks/20)
	r := rand.New(rand.NewPCG(o.Train.Seed, 2))
	for c := range chunks {
		at := make([]int32, 0, o.Chunk)
		for _, p := range r.Perm(o.Chunk - leastScored)[:min(o.Sample, o.Chunk-leastScored)] {
			at = append(at, int32(p+leastScored))
		}
		slices.Sort(at)
		to := train
		if c >= last {
			to = held
		}
		err := e.ZipRows(ctx, ids[c*o.Chunk:(c+1)*o.Chunk], at, func(layer int, x, y []float32) {
			d := &to[layer]
			d.Heads, d.In = len(y)/len(at), len(x)/len(at)
			d.X, d.Y = append(d.X, x...), append(d.Y, y...)
		})
		if err != nil {
			return nil, err
		}
		if o.Done != nil {
			o.Done(c+1, chunks, 0)
		}
	}
	return fitLayers(ctx, e, train, held, o, chunks)
}

// fitLayers trains the layers' maps, some at a time.
func fitLayers(ctx context.Context, e *engine.Engine, train, held []scorefit.Data, o FitOptions, chunks int) (*Fitted, error) {
	cache, n := e.Cache(), len(train)
	out := &Fitted{Map: &policy.ScoreMap{Layers: make([]policy.ScoreLayer, n)}, R2: make([]float64, n)}
	var group errgroup.Group
	group.SetLimit(max(o.Threads, 1))
	var lock sync.Mutex
	done := 0
	for layer := range n {
		d := &train[layer]
		out.R2[layer] = math.NaN()
		if d.Tokens() == 0 { // read by no policy: zeros, so that layers keep their numbers
			heads := max(1, cache[layer].KV.Heads)
			out.Map.Layers[layer] = policy.ScoreLayer{In: e.Model().Hidden, Heads: heads, Out: make([]float32, heads*e.Model().Hidden), OutBias: make([]float32, heads)}
			continue
		}
		out.Tokens, out.Held = d.Tokens(), held[layer].Tokens()
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			s, err := scorefit.Fit(d, o.Train)
			if err != nil {
				return fmt.Errorf("bench: layer %d: %w", layer, err)
			}
			out.Map.Layers[layer], out.R2[layer] = s, scorefit.R2(&s, &held[layer])
			d.X = nil
			lock.Lock()
			defer lock.Unlock()
			if done++; o.Done != nil {
				o.Done(chunks, chunks, done)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if out.Tokens == 0 {
		return nil, fmt.Errorf("bench: no layer of the model keeps all keys: nothing to fit: %w", policy.ErrModel)
	}
	return out, nil
}
