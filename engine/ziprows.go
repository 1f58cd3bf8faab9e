package engine

import (
	"context"
	"fmt"
	"math"

	"terrace/policy"
)

// zipRowsPolicy scores what ZipRows shows; it has to drop something, or nothing would be read a second time.
const zipRowsPolicy = "kvzip_plus:ratio=0.01,n_sink=4"

// ZipRows reads a text as kvzip_plus does, and shows of each layer that policies act on, and of the tokens at the ascending positions at, the
// rows x [tokens, Hidden] that its attention projects from and the logarithms y [tokens, KVHeads] of their scores: what maps of kvzap are
// trained on. Tokens of the context's first four positions are left out of at by the caller: they have no score. The slices are the
// caller's. Errors are those of a prompt under kvzip_plus.
func (e *Engine) ZipRows(ctx context.Context, ids []int, at []int32, show func(layer int, x, y []float32)) error {
	spec, err := policy.Parse(zipRowsPolicy)
	if err != nil {
		return err
	}
	s, err := e.NewSession(spec)
	if err != nil {
		return err
	}
	defer s.Close()
	rows, d := make([][]float32, e.m.Layers), e.m.Hidden
	s.rowsSeen = func(layer int, x []float32, pos []int32) {
		if !s.text.Acts(layer) {
			return
		}
		next := len(rows[layer]) / d
		for i, p := range pos {
			if next < len(at) && at[next] == p {
				rows[layer] = append(rows[layer], x[i*d:(i+1)*d]...)
				next++
			}
		}
	}
	if err := s.Prefill(ctx, ids, PrefillHooks{}); err != nil {
		return err
	}
	for layer := range rows {
		scores := policy.Found(s.text.Policy().Keeper, layer)
		if rows[layer] == nil || scores == nil {
			continue
		}
		if len(rows[layer]) != len(at)*d || len(scores[0]) != len(ids) {
			return fmt.Errorf("engine: %d rows and %d scores of layer %d were seen, want %d and %d: %w", len(rows[layer])/d, len(scores[0]), layer, len(at), len(ids), ErrOption)
		}
		y := make([]float32, 0, len(at)*len(scores))
		for _, p := range at {
			for _, row := range scores {
				y = append(y, float32(math.Log(max(float64(row[p]), 1e-30))))
			}
		}
		show(layer, rows[layer], y)
	}
	return nil
}
