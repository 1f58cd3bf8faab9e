package policy

import (
	"fmt"
	"slices"
)

// dms drops what a scorer gives less than a threshold, instead of a fixed part (Łańcucki et al. 2025, arXiv 2506.05345: the
// rule of its inference, without the evictor that it trains; kvpress's DMSPress). The newest sliding_window_size tokens are
// safe. Heads keep different numbers of tokens, possibly the window alone. The scorer's own budget is not used, and the scale
// of its scores matters: knorm -‖k‖, keydiff -cos, snapkv a mean weight.
type dms struct {
	scored
	inner     Scored
	threshold float32
	window    int
}

// dmsDecoder goes on while decoding: a token is judged once, by the score that it had alone, when it leaves the window.
type dmsDecoder struct{ dms }

// loneScorer is a scorer whose score of a token needs no other token.
type loneScorer interface {
	Scored
	// loneScore is the score of the cached token at an index of a KV head.
	loneScore(l *Layer, kvHead, i int) float32
}

func init() {
	register(Info{
		Name:    "dms",
		Summary: "drops what a scorer gives less than a threshold, behind the newest tokens; wraps a scorer",
		Paper:   "Inference-Time Hyper-Scaling with KV Cache Compression, arXiv 2506.05345",
		Phase:   PhaseWrapper,
		Wraps:   "knorm",
		Example: "threshold=-4",
		Params: []Param{
			{Name: "threshold", Doc: "tokens with a lower score go; must be given, in the scorer's own scale"},
			{Name: "sliding_window_size", Aliases: []string{"window"}, Default: "128", Doc: "newest tokens that stay whatever their score"},
			{Name: "decoding", Default: "false", Doc: "go on while decoding: each token is judged when it leaves the window (knorm and random)"},
		},
	}, newDMS)
}

func newDMS(a *args) Policy {
	p := dms{scored: scored{base: a.base()}, inner: a.wrapped(), window: a.int("sliding_window_size", 1, maxTokens)}
	if !a.has("threshold") {
		a.errs = append(a.errs, fmt.Errorf("policy: dms: threshold is missing: want the score below which tokens go, such as threshold=-4 for knorm: %w", ErrParam))
		return &p
	}
	p.threshold = float32(a.float("threshold", -1e30, 1e30))
	if !a.bool("decoding") {
		return &p
	}
	if _, ok := p.inner.(loneScorer); !ok && p.inner != nil {
		a.errs = append(a.errs, fmt.Errorf("policy: dms: decoding=true: %s scores a token by others, which a single step does not show: want knorm or random: %w", p.inner.Name(), ErrParam))
	}
	return &dmsDecoder{p}
}

func (p *dms) Bind(m Model) error { return bind(p.inner, m) }

func (p *dms) Needs() Needs { return p.inner.Needs() }

// KeepPrompt keeps the window and what reaches the threshold.
func (p *dms) KeepPrompt(l *Layer, keep *Selection) {
	keep.Reset(l.KVHeads)
	safe := int32(l.N - p.window) // the first position of the window
	if safe <= 0 {
		keep.All = true
		return
	}
	p.scores = heads(p.scores, l)
	p.inner.Score(l, l.N, p.scores)
	for g, row := range p.scores {
		for i, s := range row {
			if l.Pos[g][i] >= safe || !(s < p.threshold) {
				keep.Heads[g] = append(keep.Heads[g], int32(i))
			}
		}
	}
}

// DropStep judges the token that leaves the window with this step.
func (p *dmsDecoder) DropStep(l *Layer, drop *Selection) {
	drop.Reset(l.KVHeads)
	leaves := int32(l.N - 1 - p.window)
	for g := range drop.Heads {
		i, cached := slices.BinarySearch(l.Pos[g], leaves)
		if cached && p.inner.(loneScorer).loneScore(l, g, i) < p.threshold {
			drop.Heads[g] = append(drop.Heads[g], int32(i))
		}
	}
}
