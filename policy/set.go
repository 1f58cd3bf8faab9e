package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Set is what one sequence runs under: the policies of a specification, with at most one provider of each capability.
// Fields are nil where no policy of the set has the capability.
type Set struct {
	Parts     []Policy
	Keeper    PromptKeeper
	Rereader  Reconstructor // the Keeper again, where it wants a second pass
	Channels  ChannelPruner
	Dropper   StepDropper
	Selector  Selector
	Projector Projector // the Selector again, where it projects
	Watcher   Watcher
	Pruner    RowPruner
	Swapper   BlockSwapper // the Pruner again, where it swaps
	Stepper   StepPruner   // the Pruner again, where it chooses tokens at each step
	Masker    Masker
	Placer    Placer

	text string
}

// String is the canonical specification.
func (s *Set) String() string { return s.text }

// Lossless reports whether nothing of the set changes what attention sees: `full`.
func (s *Set) Lossless() bool {
	return s.Keeper == nil && s.Channels == nil && s.Dropper == nil && s.Selector == nil && s.Pruner == nil && s.Masker == nil
}

// Causal reports whether what a token leaves in the cache depends on the tokens before it alone and none of it goes: under `full`, and under
// what reads prompts by a rule of the model's own. Such a text may be forked, stored, and taken back to any token.
func (s *Set) Causal() bool { return s.Lossless() || s.trained() }

// trained reports whether the model's own indexer chooses what is read.
func (s *Set) trained() bool { return trained(s.Selector) }

func trained(p Policy) bool {
	_, ok := p.(RowSelector)
	return ok
}

// Needs unites the needs of all parts. Parts that cannot share one sketch were refused when the set was made.
func (s *Set) Needs() Needs {
	var n Needs
	for _, p := range s.Parts {
		n = n.union(p.Needs())
	}
	return n
}

func (s *Set) add(p Policy) error {
	took := func(capability string, old Policy) error {
		return fmt.Errorf("policy: %s and %s both %s, only one can: %w", old.Name(), p.Name(), capability, ErrClash)
	}
	if k, ok := p.(PromptKeeper); ok {
		if s.Keeper != nil {
			return took("choose what stays after the prompt", s.Keeper)
		}
		s.Keeper = k
		s.Rereader, _ = p.(Reconstructor)
	}
	if c, ok := p.(ChannelPruner); ok {
		if s.Channels != nil {
			return took("prune channels of the keys", s.Channels)
		}
		s.Channels = c
	}
	if d, ok := p.(StepDropper); ok {
		if s.Dropper != nil {
			return took("drop tokens while decoding", s.Dropper)
		}
		s.Dropper = d
	}
	if r, ok := p.(Selector); ok {
		if s.Selector != nil {
			return took("choose what a step reads", s.Selector)
		}
		s.Selector = r
		s.Projector, _ = p.(Projector)
	}
	if w, ok := p.(Watcher); ok && w.Watches() {
		if s.Watcher != nil {
			return took("watch the prompt's queries", s.Watcher)
		}
		s.Watcher = w
	}
	if r, ok := p.(RowPruner); ok {
		if s.Pruner != nil {
			return took("prune hidden rows", s.Pruner)
		}
		s.Pruner = r
		s.Swapper, _ = p.(BlockSwapper)
		s.Stepper, _ = p.(StepPruner)
	}
	if m, ok := p.(Masker); ok {
		if s.Masker != nil {
			return took("mask the prompt's attention", s.Masker)
		}
		s.Masker = m
	}
	if r, ok := p.(Placer); ok {
		if s.Placer != nil {
			return took("place tokens in tiers", s.Placer)
		}
		s.Placer = r
	}
	s.Parts = append(s.Parts, p)
	return s.check()
}

// check refuses combinations whose capabilities are different but disturb each other.
func (s *Set) check() error {
	if s.Pruner != nil && s.Masker != nil {
		return fmt.Errorf("policy: %s prunes rows of the prompt and %s needs all of them for its mask: %w", s.Pruner.Name(), s.Masker.Name(), ErrClash)
	}
	if r := s.Rereader; r != nil && (s.Pruner != nil || s.Masker != nil || s.Dropper != nil) {
		return fmt.Errorf("policy: %s reads the whole prompt again, which others of %s do not leave as it is: %w", r.Name(), s.text, ErrClash)
	}
	if c := s.Channels; c != nil && (s.Selector != nil || s.Pruner != nil || s.Masker != nil) {
		return fmt.Errorf("policy: %s changes keys that others of %s choose by or bring back: %w", c.Name(), s.text, ErrClash)
	}
	if m, ok := s.Keeper.(KeyMover); ok && m.ClosesGaps() && (s.Selector != nil || s.Pruner != nil || s.Masker != nil) {
		return fmt.Errorf("policy: %s moves keys that others of %s choose by or bring back: %w", m.Name(), s.text, ErrClash)
	}
	if len(s.Parts) > 1 && s.trained() {
		return fmt.Errorf("policy: indexer is how the model attends by itself, from the prompt on, which others of %s would change: want it alone: %w", s.text, ErrClash)
	}
	mass, by := 0, ""
	for _, p := range s.Parts {
		n := p.Needs().PromptSums
		if n != 0 && mass != 0 && n != mass {
			return fmt.Errorf("policy: %s and %s weigh the prompt by the attention of different queries: %w", by, p.Name(), ErrClash)
		}
		if n != 0 {
			mass, by = n, p.Name()
		}
	}
	if s.revive() == ReviveAux && s.dropsTokens() {
		return fmt.Errorf("policy: what %s pruned cannot come back beside a policy that chooses single tokens (revive=none, or auto): %w", s.Pruner.Name(), ErrClash)
	}
	if s.Placer != nil && s.Dropper != nil {
		return fmt.Errorf("policy: %s drops tokens that %s keeps on its tiers: %w", s.Dropper.Name(), s.Placer.Name(), ErrClash)
	}
	return nil
}

// revive is what the pruner wants.
func (s *Set) revive() Revive {
	switch {
	case s.Swapper != nil:
		return s.Swapper.Revives()
	case s.Stepper != nil:
		return s.Stepper.Revives()
	}
	return ReviveNone
}

// dropsTokens reports whether another policy's choice of tokens would be undone by tokens that come back: one that keeps or
// drops them, or beside a [StepPruner] one that selects them.
func (s *Set) dropsTokens() bool {
	return s.Keeper != nil || s.Dropper != nil || s.Stepper != nil && s.Selector != nil
}

// PromptOnly reports whether the policies' whole effect is in the pages once the prompt is read.
func (s *Set) PromptOnly() bool {
	return (s.Keeper != nil || s.Channels != nil) && s.Dropper == nil && s.Selector == nil && s.Pruner == nil && s.Masker == nil
}

// Follows reports whether the prompt's active tokens are followed while decoding: pruned ones may come back.
func (s *Set) Follows() bool { return s.revive() != ReviveNone && !s.dropsTokens() }

// capabilities names what a policy can do, for people.
func capabilities(p Policy) []string {
	var out []string
	add := func(ok bool, name string) {
		if ok {
			out = append(out, name)
		}
	}
	_, keeps := p.(PromptKeeper)
	_, channels := p.(ChannelPruner)
	_, drops := p.(StepDropper)
	_, selects := p.(Selector)
	_, prunes := p.(RowPruner)
	_, swaps := p.(BlockSwapper)
	_, steps := p.(StepPruner)
	_, masks := p.(Masker)
	_, places := p.(Placer)
	add(keeps, "keep after prompt")
	add(channels, "zero key channels")
	add(drops, "drop while decoding")
	add(selects, "select per query")
	add(prunes, "prune hidden rows")
	add(swaps, "swap blocks")
	add(steps, "prune at each step")
	add(masks, "mask prefill")
	add(places, "place in tiers")
	return out
}

// OwnRows is how many of a prompt's last rows the policies must see themselves, where others were read before they came, 1 at least; ok is
// false where they must see all. Queries that a [Watcher] sees are not among them.
func (s *Set) OwnRows() (rows int, ok bool) {
	n := s.Needs()
	if s.trained() || n.PromptSums == AllRows || n.Queries == AllRows || n.Weights != 0 || n.ObservesPrompt() || n.WholePrompt {
		return 0, false
	}
	return max(1, n.PromptSums, n.Queries), true
}

func (n Needs) union(o Needs) Needs {
	rows := func(a, b int) int {
		if a == AllRows || b == AllRows {
			return AllRows
		}
		return max(a, b)
	}
	n.PromptSums = rows(n.PromptSums, o.PromptSums)
	n.PromptRows = n.PromptRows || o.PromptRows
	n.StepSums = rows(n.StepSums, o.StepSums)
	n.Queries = rows(n.Queries, o.Queries)
	n.Weights = rows(n.Weights, o.Weights)
	n.Observations, n.OfModel = unite(n.Observations, o.Observations), unite(n.OfModel, o.OfModel)
	n.Keys, n.Values = n.Keys || o.Keys, n.Values || o.Values
	n.OwnChannels = n.OwnChannels || o.OwnChannels
	n.Query, n.QueryFrom = max(n.Query, o.Query), max(n.QueryFrom, o.QueryFrom)
	if o.Sketch.Kind != SketchNone {
		n.Sketch = o.Sketch
	}
	n.Estimates = n.Estimates || o.Estimates
	n.ValueMean = n.ValueMean || o.ValueMean
	n.Filters = cmp.Or(n.Filters, o.Filters)
	n.TokenGranularity = n.TokenGranularity || o.TokenGranularity
	n.SinglesByHead = n.SinglesByHead || o.SinglesByHead
	n.SharedAcrossHeads = n.SharedAcrossHeads || o.SharedAcrossHeads
	n.HostScores = n.HostScores || o.HostScores
	n.WholePrompt = n.WholePrompt || o.WholePrompt
	return n
}

// sees lists for people what the set has to see.
func (s *Set) sees() []string {
	var out []string
	n := s.Needs()
	observed := func(all []Observation, prompt bool) {
		for _, o := range all {
			if ofPrompt(o) == prompt {
				out = append(out, o.String())
			}
		}
	}
	rows := func(n int, what string) {
		switch {
		case n == AllRows:
			out = append(out, "all "+what)
		case n > 0:
			out = append(out, fmt.Sprintf("%s (last %d)", what, n))
		}
	}
	rows(n.PromptSums, "prompt queries' attention mass")
	rows(n.StepSums, "decode queries' attention mass")
	rows(n.Queries, "queries")
	rows(n.Weights, "queries' attention weights before attending")
	if s.Watcher != nil {
		out = append(out, "queries as they pass")
	}
	observed(n.Observations, true)
	if n.Keys {
		out = append(out, "keys")
	}
	if n.Values {
		out = append(out, "values")
	}
	observed(n.Observations, false)
	if n.ValueMean {
		out = append(out, "value mean")
	}
	if n.Query != QueryExact {
		out = append(out, n.Query.String()+" query")
	}
	if n.Sketch.Kind != SketchNone {
		out = append(out, strings.TrimSpace(n.Sketch.Kind.String()+" key sketch"))
	}
	if s.trained() {
		out = append(out, "index queries")
	}
	observed(n.OfModel, false)
	if n.Filters != "" {
		out = append(out, "filters trained for the model")
	}
	if s.Rereader != nil {
		out = append(out, "a second pass over the prompt")
	}
	if n.WholePrompt {
		out = append(out, "the whole prompt layer by layer")
	}
	return slices.Clip(out)
}

// infinity is above every score; policies use it for tokens that must stay.
var infinity = float32(math.Inf(1))
