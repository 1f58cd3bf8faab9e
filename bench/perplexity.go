package bench

import (
	"context"
	"fmt"
	"math"

	"terrace/engine"
)

// PerplexityOptions follow llama-perplexity: the text is cut into chunks that do not overlap, and in each the predictions of
// its second half are scored.
type PerplexityOptions struct {
	Chunk    int                       // tokens a chunk; 0 = 1024
	Limit    int                       // chunks to score; 0 = all whole ones
	BOS      int                       // replaces the first token of each chunk; -1 = nothing does
	OnChunk  func(done, total int)     // progress; nil = not
	OnLogits func(logProbs []float64)  // log-probabilities [V] of each scored position, in order; nil = not
	Base     func() ([]float64, error) // log-probabilities of a reference run, in the same order, for KL; nil = none
}

// Perplexity is the outcome: exp of the mean negative log-likelihood.
type Perplexity struct {
	PPL       float64
	NLL       float64 // mean, nats a token
	StdErr    float64 // of NLL
	Tokens    int     // predictions scored
	Chunks    []float64
	KL        float64 // mean KL(reference ‖ this), nats; only with Base
	SameTop   float64 // share of positions with the same likeliest token; only with Base
	HasBase   bool
	sum, sum2 float64
	kl, same  float64
}

// Perplex scores a text's ids.
func Perplex(ctx context.Context, e *engine.Engine, ids []int, o PerplexityOptions) (*Perplexity, error) {
	if o.Chunk == 0 {
		o.Chunk = 1024
	}
	if o.Chunk < 4 {
		return nil, fmt.Errorf("bench: chunks of %d tokens, want 4 or more: %w", o.Chunk, engine.ErrOption)
	}
	if o.Chunk > e.Options().Context {
		return nil, engine.TooLong(o.Chunk, 0, e.Options().Context, 0)
	}
	chunks := len(ids) / o.Chunk
	if o.Limit > 0 {
		chunks = min(chunks, o.Limit)
	}
	if chunks == 0 {
		return nil, fmt.Errorf("bench: the text has %d tokens, less than one chunk of %d: %w", len(ids), o.Chunk, engine.ErrOption)
	}
	p := &Perplexity{HasBase: o.Base != nil}
	for c := range chunks {
		if err := p.scoreChunk(ctx, e, ids[c*o.Chunk:(c+1)*o.Chunk], o); err != nil {
			return nil, fmt.Errorf("chunk %d: %w", c+1, err)
		}
		if o.OnChunk != nil {
			o.OnChunk(c+1, chunks)
		}
	}
	n := float64(p.Tokens)
	p.NLL = p.sum / n
	p.PPL = math.Exp(p.NLL)
	p.StdErr = math.Sqrt(max(0, p.sum2/n-p.NLL*p.NLL) / max(1, n-1))
	p.KL, p.SameTop = p.kl/n, p.same/n
	return p, nil
}

// scoreChunk adds one chunk's predictions at positions chunk/2 … chunk-2.
func (p *Perplexity) scoreChunk(ctx context.Context, e *engine.Engine, ids []int, o PerplexityOptions) error {
	chunk := append([]int(nil), ids...)
	if o.BOS >= 0 {
		chunk[0] = o.BOS
	}
	s, err := e.NewSession(e.Policy())
	if err != nil {
		return err
	}
	defer s.Close()
	half, before, at := len(chunk)/2, p.sum, p.Tokens
	v := e.Model().Vocab
	logProbs := make([]float64, v)
	each := func(first int, logits []float32) error {
		for r := range len(logits) / v {
			pos := first + r
			if pos < half || pos >= len(chunk)-1 {
				continue
			}
			if err := p.score(logits[r*v:(r+1)*v], chunk[pos+1], logProbs, o); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.Prefill(ctx, chunk, engine.PrefillHooks{Each: each}); err != nil {
		return err
	}
	p.Chunks = append(p.Chunks, (p.sum-before)/float64(p.Tokens-at))
	return nil
}

// score adds one prediction.
func (p *Perplexity) score(logits []float32, next int, logProbs []float64, o PerplexityOptions) error {
	if next < 0 || next >= len(logits) {
		return fmt.Errorf("bench: token id %d, the vocabulary has %d: %w", next, len(logits), engine.ErrOption)
	}
	if err := engine.CheckFinite(logits); err != nil {
		return err
	}
	logSoftmax(logProbs, logits)
	nll := -logProbs[next]
	p.sum += nll
	p.sum2 += nll * nll
	p.Tokens++
	if o.OnLogits != nil {
		o.OnLogits(logProbs)
	}
	if o.Base == nil {
		return nil
	}
	base, err := o.Base()
	if err != nil {
		return err
	}
	top, baseTop := 0, 0
	for i, lp := range base {
		p.kl += math.Exp(lp) * (lp - logProbs[i])
		if lp > base[baseTop] {
			baseTop = i
		}
		if logProbs[i] > logProbs[top] {
			top = i
		}
	}
	if top == baseTop {
		p.same++
	}
	return nil
}

// logSoftmax writes log-probabilities in float64.
func logSoftmax(dst []float64, logits []float32) {
	peak := logits[0]
	for _, v := range logits {
		peak = max(peak, v)
	}
	var sum float64
	for _, v := range logits {
		sum += math.Exp(float64(v - peak))
	}
	lse := float64(peak) + math.Log(sum)
	for i, v := range logits {
		dst[i] = float64(v) - lse
	}
}
