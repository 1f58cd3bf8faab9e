package engine

import (
	"context"

	"terrace/policy"
)

// centersPolicy looks at where queries stand; it has to drop something, or it would not look.
const centersPolicy = "triattention:budget=2"

// Centers reads a text of three tokens at least and gives where the queries of each layer that policies act on stand before RoPE, nil of the
// others: what triattention's files hold. Errors are those of a prompt.
func (e *Engine) Centers(ctx context.Context, ids []int) ([]*policy.Centers, error) {
	spec, err := policy.Parse(centersPolicy)
	if err != nil {
		return nil, err
	}
	s, err := e.NewSession(spec)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Prefill(ctx, ids, PrefillHooks{}); err != nil {
		return nil, err
	}
	out := make([]*policy.Centers, e.m.Layers)
	for layer := range out {
		out[layer] = policy.SeenCenters(s.text.Policy().Keeper, layer)
	}
	return out, nil
}
