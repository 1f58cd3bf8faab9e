package policy

import (
	"fmt"
	"math"
)

// criticalKV keeps what matters for the output and not for the weights alone (Feng et al. 2025, arXiv 2502.03805; kvpress's
// CriticalKVPress). Its first stage keeps the best tokens of the policy it wraps, first_stage_ratio of the budget; its second fills the
// rest with the largest (score + epsilon)·‖W_O·v‖₁, the norm of what a value brings to the layer's output, averaged over the heads of
// the group. The wrapped policy's window and sinks have no right of their own in the second stage; scores below 0 (knorm) rank large
// values last, in kvpress too.
//
// adaptive=true first shares the layer's budget among the heads as adakv does, by the wrapped scores, and works in each head's share
// (CriticalAdaKVPress).
type criticalKV struct {
	scored
	inner          Scored
	epsilon, first float64
	adaptive       bool
	safe           float64

	norms [][]float32 // [Heads][tokens]
	sizes [][]float32 // [KVHeads][tokens] their means over the group
	flat  []float32   // the layer's wrapped scores, where adaptive
	picks []int32
	share []int // of each head
}

// OutputNorms is the [Observation] of what values bring to a layer's output: a func(dst [][]float32) that fills dst [Heads][tokens of its KV
// head] with ‖W_O·v‖₁, the L1 norm of what a query head adds to the output for each unit of weight on a token, worked out at each call.
type OutputNorms struct{}

// Key implements [Observation].
func (OutputNorms) Key() string    { return "output_norms" }
func (OutputNorms) String() string { return "norms of projected values" }

func init() {
	register(Info{
		Name:          "criticalkv",
		Summary:       "half by score, half by score times what the value adds to the output; wraps a scorer",
		Paper:         "Identify Critical KV Cache in LLM Inference from an Output Perturbation Perspective, arXiv 2502.03805",
		Phase:         PhaseWrapper,
		MayDropNewest: true,
		MayDropSinks:  true,
		Wraps:         "snapkv",
		Params: []Param{
			{Name: "first_stage_ratio", Default: "0.5", Doc: "part of the budget that the wrapped scores alone fill"},
			{Name: "epsilon", Default: "0.0001", Doc: "added to a score before it is multiplied"},
			{Name: "adaptive", Default: "false", Doc: "share the layer's budget among its heads by score, as adakv does"},
			{Name: "alpha_safeguard", Default: "0.2", Doc: "with adaptive: share of an even budget that each head keeps in any case"},
		},
	}, newCriticalKV)
}

func newCriticalKV(a *args) Policy {
	p := &criticalKV{scored: scored{base: a.base()}, inner: a.wrapped(), epsilon: a.float("epsilon", 0, 1e9), first: a.float("first_stage_ratio", 0, 1),
		adaptive: a.bool("adaptive"), safe: a.float("alpha_safeguard", 0, 1)}
	if a.inner.entry.info.Phase == PhaseWrapper {
		a.errs = append(a.errs, fmt.Errorf("policy: criticalkv: %s is a wrapper, whose choice two stages would undo: want a policy that scores by itself, such as snapkv (adaptive=true shares as adakv does): %w",
			a.inner.entry.info.Name, ErrParam))
	}
	if a.has("alpha_safeguard") && !p.adaptive {
		a.errs = append(a.errs, fmt.Errorf("policy: criticalkv: alpha_safeguard=%s has no meaning without adaptive=true: %w", a.raw("alpha_safeguard"), ErrParam))
	}
	return p
}

func (p *criticalKV) Bind(m Model) error { return bind(p.inner, m) }

// Needs are the wrapped policy's, and what values bring to the output.
func (p *criticalKV) Needs() Needs {
	n := p.inner.Needs()
	n.Observations = unite(n.Observations, []Observation{OutputNorms{}})
	return n
}

func (p *criticalKV) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Target is the wrapped policy's.
func (p *criticalKV) Target(l *Layer) int { return p.inner.Target(l) }

// Score is that of both stages: the first stage's tokens stand above all others.
func (p *criticalKV) Score(l *Layer, target int, dst [][]float32) {
	p.inner.Score(l, target, dst)
	if p.adaptive {
		p.flat = p.flat[:0]
		for _, row := range dst {
			p.flat = append(p.flat, row...)
		}
	}
	p.measure(l)
	n := int(p.tokens(l, target) * p.first)
	for g, row := range dst {
		p.picks = p.pick.best(p.picks[:0], row, n, 0)
		p.weigh(row, p.sizes[g], p.picks, math.MaxFloat32)
	}
}

// tokens is the budget of a head before rounding, as kvpress divides it; target where another policy has set it.
func (p *criticalKV) tokens(l *Layer, target int) float64 {
	if s, ok := p.inner.(interface{ given() Budget }); ok && s.given().Removes() && target == p.inner.Target(l) && target == s.given().Of(l, l.N) {
		return s.given().Float(l.N, l.KVBytes)
	}
	return float64(target)
}

// weigh multiplies a head's scores by the sizes of its values; those listed get top instead.
func (p *criticalKV) weigh(row, sizes []float32, listed []int32, top float32) {
	for i := range row {
		row[i] = (row[i] + float32(p.epsilon)) * sizes[i]
	}
	for _, i := range listed {
		row[i] = top
	}
}

// measure fills sizes for a layer.
func (p *criticalKV) measure(l *Layer) {
	p.sizes = heads(p.sizes, l)
	for len(p.norms) < l.Heads {
		p.norms = append(p.norms, nil)
	}
	p.norms = p.norms[:l.Heads]
	for h := range p.norms {
		p.norms[h] = sized(p.norms[h], l.Tokens(h/l.Group()))
	}
	fill, _ := Seen[func(dst [][]float32)](l.Observed, OutputNorms{})
	fill(p.norms)
	for g, row := range p.sizes {
		clear(row)
		for _, norms := range p.norms[g*l.Group() : (g+1)*l.Group()] {
			for i, x := range norms {
				row[i] += x
			}
		}
		for i := range row {
			row[i] /= float32(l.Group())
		}
	}
}

// Cut keeps the best of both stages; with adaptive, in each head's share of the layer's KVHeads·target places, of what the last Score
// took from the wrapped policy: how many of a head the first stage takes follows from the scores of all.
func (p *criticalKV) Cut(l *Layer, scores [][]float32, target int, keep *Selection) {
	if !p.adaptive {
		p.scored.Cut(l, scores, target, keep)
		return
	}
	safe := p.divide(l, target)
	from := 0
	for g, sizes := range p.sizes {
		row, share := p.flat[from:from+len(sizes)], p.share[g]
		from += len(row)
		p.picks = p.pick.best(p.picks[:0], row, max(int(float64(share)*p.first), safe), 0) // the safe ones stand first
		p.weigh(row, sizes, p.picks, infinity)
		keep.Heads[g] = p.pick.best(keep.Heads[g], row, share, 0)
	}
}

// divide fills share with how many tokens each head keeps, and makes the scores of each head's safe best infinite.
func (p *criticalKV) divide(l *Layer, target int) (safe int) {
	safe = int(float64(target) * p.safe)
	if p.safe > 0 {
		safe = max(safe, 1)
	}
	p.share = sized(p.share, len(p.sizes))
	from := 0
	for _, sizes := range p.sizes {
		row := p.flat[from : from+len(sizes)]
		from += len(row)
		p.picks = p.pick.best(p.picks[:0], row, safe, 0)
		for _, i := range p.picks {
			row[i] = infinity
		}
	}
	p.picks = p.pick.best(p.picks[:0], p.flat, l.KVHeads*target, 0)
	at, end := 0, int32(0)
	for g, sizes := range p.sizes {
		end += int32(len(sizes))
		for p.share[g] = 0; at < len(p.picks) && p.picks[at] < end; at++ {
			p.share[g]++
		}
	}
	return safe
}
