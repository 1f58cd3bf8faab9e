package engine

import (
	"fmt"
	"slices"
)

// Force has the text go on with some tokens, as if they had been chosen; neither stop strings nor end tokens end it meanwhile. Where
// a constraint forbids one it is chosen instead, and the rest forgotten.
func (g *Generation) Force(ids []int) { g.forced = ids }

// Forced is how many tokens are still to come by Force.
func (g *Generation) Forced() int { return len(g.forced) }

// force takes the next forced token, if there is one; bar has been called.
func (g *Generation) force() (id int, ok bool) {
	if len(g.forced) == 0 {
		return 0, false
	}
	if id, g.forced = g.forced[0], g.forced[1:]; !g.sampler.Took(id) {
		g.forced = nil
		return 0, false
	}
	return id, true
}

// bar has the sampler leave out end tokens while the text is shorter than asked for, and what the constraint forbids. A
// constrained text that ignores end tokens goes on until it is complete.
func (g *Generation) bar() error {
	short := len(g.res.IDs) < g.r.MinTokens
	ends := short && !g.r.IgnoreEOS
	if g.r.Constrain != nil {
		mask, err := g.r.Constrain.Mask()
		if err != nil {
			return fmt.Errorf("engine: token %d of the text: %w", len(g.res.IDs)+1, err)
		}
		g.sampler.Allow(mask)
		ends = ends || g.r.IgnoreEOS
	}
	switch {
	case short && len(g.r.StopIDs) > 0:
		g.sampler.Bar(func(id int) bool { return ends && g.r.ends(id) || slices.Contains(g.r.StopIDs, id) })
	case ends:
		g.sampler.Bar(g.r.IsEnd)
	default:
		g.sampler.Bar(nil)
	}
	return nil
}

func (r *Request) ends(id int) bool { return r.IsEnd != nil && r.IsEnd(id) }

// constrain tells the constraint which token came; complete says that nothing can follow it.
func (g *Generation) constrain(id int) (complete bool, err error) {
	if g.r.Constrain == nil {
		return false, nil
	}
	if err := g.r.Constrain.Accept(id); err != nil {
		return false, fmt.Errorf("engine: token %d of the text: %w", len(g.res.IDs), err)
	}
	return g.r.Constrain.Ended(), nil
}

// nothingLeft says why no token may be chosen.
func (g *Generation) nothingLeft() error {
	if g.r.Constrain != nil {
		return fmt.Errorf("engine: token %d: no token of the vocabulary continues the text under its constraint: %w", len(g.res.IDs)+1, ErrOption)
	}
	return fmt.Errorf("engine: token %d of at least %d: every token of the vocabulary is an end token: %w", len(g.res.IDs)+1, g.r.MinTokens, ErrOption)
}
