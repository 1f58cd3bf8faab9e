package engine

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/policy"
)

// prunes reports whether hidden rows leave after a layer's attention.
func (r *policyRun) prunes(layer int) bool {
	return r.set.Pruner != nil && slices.Contains(r.set.Pruner.PruneLayers(), layer)
}

// swaps reports whether a pruning layer's active blocks are followed while decoding.
func (r *policyRun) swaps(layer int) bool { return r.set.Swapper != nil && r.stage(layer) != nil }

// prune takes the rows through a pruning layer: keys and values of all that reached it are cached, and the policy says
// which rows go on. The attention of the others is dead (nothing reads it: a pruned row leaves before the feed-forward
// network), so it is not computed, unless a policy looks at its weights. Queries of the survivors are projected twice for
// that: 2·W_qkv operations a row instead of 4·H·d·N/2, and no buffer of queries.
func (p *promptPass) prune(layer int) error {
	r := p.s.policy
	var all []float32 // [rows, H·dv] attention output of every row, where somebody looks at all their weights
	width := p.e.m.Heads * p.e.m.ValDim
	eager := r.set.Keeper != nil || r.needs.PromptMass == policy.AllRows
	if eager {
		all = make([]float32, len(p.pos)*width)
	}
	err := p.chunks(func(lo, hi int) error {
		q, err := p.project(layer, lo, hi)
		if err != nil {
			return err
		}
		from := lo
		if !eager {
			if r.needs.PromptMass == 0 || hi < len(p.pos) {
				return nil
			}
			from = hi - min(hi-lo, r.needs.PromptMass)
			q = lastRows(q, hi-from)
		}
		attended, err := p.attend(layer, q, from, hi)
		if err == nil && eager {
			copy(all[lo*width:], floats(attended))
		}
		return err
	})
	if err != nil {
		return err
	}
	keep, err := p.survivors(layer)
	if err != nil {
		return err
	}
	p.leave(layer, keep)
	p.cut(keep, all, width)
	if err := p.goOn(layer, all, width); err != nil {
		return err
	}
	return r.after(p.s, layer, p.total, true, true)
}

// survivors asks the policy, and returns the numbers of the rows that go on, ascending: nil for all of them.
func (p *promptPass) survivors(layer int) ([]int, error) {
	r := p.s.policy
	rows := policy.Rows{}
	r.set.Pruner.KeepRows(r.observe(p.s, layer, p.total), p.pos, &rows)
	if rows.All {
		return nil, nil
	}
	keep := make([]int, 0, len(rows.Pos))
	at := 0
	for _, pos := range rows.Pos {
		i, ok := slices.BinarySearch(p.pos[at:], pos)
		if !ok {
			return nil, fmt.Errorf("engine: policy %s lets position %d of layer %d go on, which is not alive or not in order: %w", r.set, pos, layer, kvmanager.ErrPlan)
		}
		at += i + 1
		keep = append(keep, at-1)
	}
	if at != len(p.pos) {
		return nil, fmt.Errorf("engine: policy %s prunes the last row of the prompt at layer %d: %w", r.set, layer, kvmanager.ErrPlan)
	}
	return keep, nil
}

// cut makes the surviving rows the rows.
func (p *promptPass) cut(keep []int, all []float32, width int) {
	if keep == nil {
		return
	}
	d := p.e.m.Hidden
	for to, from := range keep {
		copy(p.hidden[to*d:(to+1)*d], p.hidden[from*d:(from+1)*d])
		p.pos[to] = p.pos[from]
		if all != nil {
			copy(all[to*width:(to+1)*width], all[from*width:(from+1)*width])
		}
	}
	p.pos, p.lens, p.hidden = p.pos[:len(keep)], p.lens[:len(keep)], p.hidden[:len(keep)*d]
	if cap(p.hidden) > 2*len(p.hidden) {
		p.hidden = slices.Clone(p.hidden)
	}
}

// goOn computes the survivors' attention, where it is not in all, and takes them through the rest of the layer.
func (p *promptPass) goOn(layer int, all []float32, width int) error {
	return p.chunks(func(lo, hi int) error {
		if all != nil {
			out := tensor.New(tensor.WithShape(hi-lo, width), tensor.WithBacking(all[lo*width:hi*width]))
			return p.finish(layer, lo, hi, out)
		}
		q, err := p.query(layer, lo, hi)
		if err != nil {
			return err
		}
		attended, err := p.attendSeq(layer, q, lo, hi, attention.Seq{})
		if err != nil {
			return err
		}
		return p.finish(layer, lo, hi, attended)
	})
}

// query is the rows' queries once more; their keys and values are in the cache.
func (p *promptPass) query(layer, lo, hi int) (*tensor.Dense, error) {
	q, _, _, err := p.e.backend.Project(p.pass(lo, hi), layer, p.rows(lo, hi))
	if err != nil {
		return nil, err
	}
	if p.e.o.Rotate {
		rotate(model.WritableFloat32s(q), p.e.m.KeyDim)
	}
	p.s.work.projected(p.e.m, layer, hi-lo)
	return q, nil
}
