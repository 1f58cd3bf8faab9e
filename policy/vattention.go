package policy

import (
	"fmt"
	"math"
	"slices"

	"terrace/internal/kernels"
)

// vAttention reads what a selector picks and a uniform sample of the other tokens, weighted so that it stands for all of them (Desai et al.
// 2025, arXiv 2510.05688; algorithms.md 5.14). Of the n_s tokens that are not picked, a pilot of the share `base` is drawn; from the mean and
// the standard deviation σ of its e^z, z = scale·q·k, follow the softmax's denominator D = Σ_picks e^z + n_s·mean and the sample
//
//	b = (Φ⁻¹(1 − delta/2)·σ·n_s / (epsilon·D))², no less than the pilot, no more than n_s
//
// with which the estimate of D is off by no more than epsilon·D in 1 − delta of all cases, as far as a mean of b numbers is normal. A KV head
// takes the largest b of its query heads. Attention is
//
//	(Σ_picks e^z·v + n_s/b·Σ_sample e^z·v) / (Σ_picks e^z + n_s/b·Σ_sample e^z)
//
// Tokens are drawn without replacement, the pilot first, by a permutation that the seed, the layer, the KV head and the step's position
// make: a text has one outcome, alone and in a batch, wherever its KV lies.
//
// Beside the selector's scan a step reads b keys and values. On tiers layers stream whole, for any token may be drawn.
type vAttention struct {
	base
	aroundSelector
	pilot, epsilon, quantile float64
	seed                     uint64
	token                    float64 // share of [Layer].KVBytes that a KV head of a layer has

	heads []samplingHead
	value []float32
}

// vAttentionProjecting is around a selector that chooses columns of keys.
type vAttentionProjecting struct {
	vAttention
	aroundProjector
}

// samplingHead is one KV head's scratch: heads may be on different threads.
type samplingHead struct {
	rest   []int32     // tokens that are not picked; the first drawn of them are the sample
	drawn  []int32     // the sample: the pilot ascending, then the others ascending
	scores [][]float32 // [group][drawn] z
	raw    []float32   // products as they come
	tops   []float64   // [group] largest z of the picks
	picked []float64   // [group] Σ e^(z-top) over the picks
	stats  []float64   // e^(z-top) of the pilot
}

func init() {
	register(Info{
		Name:    "vattention",
		Summary: "reads a selector's picks and a weighted sample of all others, as large as an error bound asks; wraps a selector",
		Paper:   "vAttention: Verified Sparse Attention, arXiv 2510.05688",
		Phase:   PhaseWrapper,
		Wraps:   "pqcache",
		Inner:   "select",
		Params: []Param{
			{Name: "base", Default: "2%", Doc: "share of the tokens not picked that is drawn in any case, at least two: what the bound is worked out from"},
			{Name: "epsilon", Default: "10%", Doc: "relative error of the softmax's denominator that is allowed"},
			{Name: "delta", Default: "10%", Doc: "share of cases in which it may be larger"},
			{Name: "seed", Default: "0", Doc: "of what is drawn"},
		},
	}, newVAttention)
}

func newVAttention(a *args) Policy {
	delta := a.float("delta", 1e-9, 1)
	p := vAttention{base: a.base(), pilot: a.float("base", 0, 1), epsilon: a.float("epsilon", 1e-9, 1e9), quantile: math.Sqrt2 * math.Erfinv(1-delta),
		seed: uint64(a.int("seed", 0, maxTokens))}
	inner := a.innerSelector()
	if inner == nil {
		return &p
	}
	if inner.Needs().Sketch.Listed == ListedInt4 {
		a.errs = append(a.errs, fmt.Errorf("policy: vattention: %s estimates with 4-bit keys, and the sample with the keys themselves: want estimate=exact: %w", inner.Name(), ErrParam))
	}
	if inner.Needs().Query != QueryExact {
		a.errs = append(a.errs, fmt.Errorf("policy: vattention: %s picks by a query that is not the step's own, which the estimate is made with: want query=exact: %w", inner.Name(), ErrParam))
	}
	p.aroundSelector = aroundSelector{inner}
	if _, ok := inner.(Projector); ok {
		return &vAttentionProjecting{p, aroundProjector{inner}}
	}
	return &p
}

// Bind counts the layers and KV heads that share a token's bytes.
func (p *vAttention) Bind(m Model) error {
	if err := p.aroundSelector.Bind(m); err != nil {
		return err
	}
	if _, err := m.one(p.Name()); err != nil {
		return err
	}
	p.token = tokenShare(m)
	return nil
}

// Needs are the selector's, and the keys themselves.
func (p *vAttention) Needs() Needs {
	n := p.inner.Needs()
	n.TokenGranularity, n.SharedAcrossHeads, n.SinglesByHead, n.Estimates = true, false, false, true
	n.Sketch.Listed = ListedExact
	return n
}

// Most implements [Reader].
func (p *vAttention) Most(l *Layer) (tokens, run int) { return p.most(l) }

// Select adds the sample's part to what the selector picks.
func (p *vAttention) Select(l *Layer, read *Selection) {
	p.inner.Select(l, read)
	if read.All {
		return
	}
	for len(p.heads) < l.KVHeads {
		p.heads = append(p.heads, samplingHead{})
	}
	l.each(l.KVHeads, func(_, g int) {
		h, picks, n := &p.heads[g], read.Heads[g], l.Tokens(g)
		if len(picks) == 0 || int(picks[len(picks)-1]) != n-1 {
			picks = append(picks, int32(n-1)) // the newest is read in any case
		}
		read.Heads[g] = picks
		h.draw(p, l, g, picks)
	})
	for g := range l.KVHeads { // values are read by one thread
		p.estimate(l, g, read)
	}
}

// draw chooses a KV head's sample and leaves its scores.
func (h *samplingHead) draw(p *vAttention, l *Layer, g int, picks []int32) {
	group, queries := l.Group(), l.queries(g)
	h.rest, h.drawn = rest(h.rest[:0], picks, l.Tokens(g)), h.drawn[:0]
	n := len(h.rest)
	if n == 0 {
		return
	}
	h.raw = sized(h.raw, group*len(picks))
	l.Scores.Listed(g, picks, queries, group, h.raw)
	h.tops, h.picked = sized(h.tops, group), sized(h.picked, group)
	for r := range group {
		row := h.raw[r*len(picks) : (r+1)*len(picks)]
		top := float64(l.scale() * slices.Max(row))
		if l.Sinks != nil {
			top = max(top, float64(l.Sinks[g*group+r]))
		}
		h.tops[r], h.picked[r] = top, 0
		for _, s := range row {
			h.picked[r] += math.Exp(float64(l.scale()*s) - top)
		}
		if l.Sinks != nil {
			h.picked[r] += math.Exp(float64(l.Sinks[g*group+r]) - top)
		}
	}
	for len(h.scores) < group {
		h.scores = append(h.scores, nil)
	}
	for r := range group {
		h.scores[r] = h.scores[r][:0]
	}
	random := p.seed ^ splitmix(uint64(l.Index)<<40|uint64(g)<<32|uint64(l.N))
	take := func(to int) { // the first of a permutation of rest
		from := len(h.drawn)
		for taken := from; taken < to; taken++ {
			random = splitmix(random)
			at := taken + int(random%uint64(n-taken))
			h.rest[taken], h.rest[at] = h.rest[at], h.rest[taken]
		}
		h.drawn = append(h.drawn, h.rest[from:to]...)
		more := h.drawn[from:]
		slices.Sort(more)
		h.raw = sized(h.raw, group*len(more))
		l.Scores.Listed(g, more, queries, group, h.raw)
		for r := range group {
			for _, s := range h.raw[r*len(more) : (r+1)*len(more)] {
				h.scores[r] = append(h.scores[r], l.scale()*s)
			}
		}
	}
	pilot := min(max(int(p.pilot*float64(n)+1e-9), 2), n)
	take(pilot)
	most := pilot
	for r := range group {
		most = max(most, h.budget(p, r, n))
	}
	if most > pilot {
		take(most)
	}
}

// budget is how many of n tokens query head r of the group needs, by the pilot's scores.
func (h *samplingHead) budget(p *vAttention, r, n int) int {
	h.stats = h.stats[:0]
	var mean, square float64
	pilot := len(h.scores[r])
	for _, z := range h.scores[r] {
		h.stats = append(h.stats, math.Exp(float64(z)-h.tops[r]))
		mean += h.stats[len(h.stats)-1] / float64(pilot)
	}
	for _, e := range h.stats {
		square += (e - mean) * (e - mean)
	}
	if square == 0 {
		return pilot
	}
	denominator := h.picked[r] + float64(n)*mean
	want := p.quantile * math.Sqrt(square/float64(pilot-1)) * float64(n) / (p.epsilon * denominator)
	if want *= want; !(want < float64(n)) {
		return n
	}
	return max(int(want), pilot)
}

// estimate adds what a KV head's sample stands for, by query head.
func (p *vAttention) estimate(l *Layer, g int, read *Selection) {
	h, group, dim, e := &p.heads[g], l.Group(), l.ValueDim, &read.Estimates
	b := len(h.drawn)
	from := len(e.Values)
	e.Values = append(e.Values, make([]float32, group*dim)...)
	if b == 0 {
		for range group {
			e.LogSum = append(e.LogSum, -infinity)
		}
		return
	}
	// Picks' keys, which attention reads too, are counted once.
	bytes := p.token * float64(l.KVBytes) / float64(l.KeyDim+dim)
	read.Scanned += int64(bytes * float64(b*dim-len(read.Heads[g])*l.KeyDim))
	for r := range group {
		row, top, total := h.scores[r], float64(slices.Max(h.scores[r])), 0.0
		for i, z := range row {
			x := math.Exp(float64(z) - top)
			row[i] = float32(x)
			total += x
		}
		kernels.Scale(row, float32(1/total))
		e.LogSum = append(e.LogSum, float32(top+math.Log(total)+math.Log(float64(len(h.rest))/float64(b))))
	}
	p.value = sized(p.value, dim)
	for i, t := range h.drawn {
		l.KV.Values(g, int(t), int(t)+1, p.value)
		for r := range group {
			kernels.Axpy(e.Values[from+r*dim:from+(r+1)*dim], h.scores[r][i], p.value)
		}
	}
}
