package engine

import (
	"fmt"
	"slices"

	"terrace/kvmanager"
	"terrace/policy"
)

// pruneLayer takes the rows through a pruning layer: keys and values of all that reached it are cached, and the policy says
// which rows go on. The attention of the others is dead (nothing reads it: a pruned row leaves before the feed-forward
// network), so it is not computed, unless a policy looks at its weights. Queries of the survivors are projected twice for
// that: 2·W_qkv operations a row instead of 4·H·d·N/2, and no buffer of queries.
func (w *wholePrompt) pruneLayer(layer int) error {
	needs, n := w.s.text.Needs(), len(w.pos)
	var outputs []float32 // of every row, where somebody looks at all their weights
	first := n            // row whose attention somebody looks at before the choice
	if w.s.text.Policy().Keeper != nil || needs.PromptSums == policy.AllRows {
		outputs, first = make([]float32, 0, n*w.e.attendedWidth(layer)), 0
	} else if needs.PromptSums > 0 {
		first = n - needs.PromptSums
	}
	err := w.blocks(0, func(p *pass) error {
		q, err := p.project(layer, keysOnly)
		if err != nil || w.hi < n && first > 0 || first == n {
			return err
		}
		rows := min(w.hi-w.lo, w.hi-max(first, 0))
		p.trim(rows)
		attended, err := p.read(layer, lastRows(q, rows))
		if err == nil && outputs != nil {
			outputs = append(outputs, floats(attended)...)
		}
		return err
	})
	if err != nil {
		return err
	}
	keep, err := w.survivors(layer)
	if err != nil {
		return err
	}
	w.kept.attended, w.kept.again = outputs, true
	if err := w.keepLeaving(layer, keep); err != nil {
		return err
	}
	w.cut(layer, keep)
	return w.blocks(0, func(p *pass) error { return w.through(p, layer, afterKeys) })
}

// survivors asks the policy, and returns the numbers of the rows that go on, ascending: nil for all of them.
func (w *wholePrompt) survivors(layer int) ([]int, error) {
	rows, set := policy.Rows{}, w.s.text.Policy()
	l, err := w.s.text.Decided(layer, w.total)
	if err != nil {
		return nil, err
	}
	set.Pruner.KeepRows(l, w.pos, &rows)
	if rows.All {
		return nil, nil
	}
	keep := make([]int, 0, len(rows.Pos))
	at := 0
	for _, pos := range rows.Pos {
		i, ok := slices.BinarySearch(w.pos[at:], pos)
		if !ok {
			return nil, fmt.Errorf("engine: policy %s lets position %d of layer %d go on, which is not alive or not in order: %w", set, pos, layer, kvmanager.ErrPlan)
		}
		at += i + 1
		keep = append(keep, at-1)
	}
	if at != len(w.pos) {
		return nil, fmt.Errorf("engine: policy %s prunes the last row of the prompt at layer %d: %w", set, layer, kvmanager.ErrPlan)
	}
	return keep, nil
}

// cut makes the surviving rows the rows.
func (w *wholePrompt) cut(layer int, keep []int) {
	if keep == nil {
		return
	}
	d, width := w.e.m.RowWidth(), w.e.attendedWidth(layer)
	for to, from := range keep {
		copy(w.hidden[to*d:(to+1)*d], w.hidden[from*d:(from+1)*d])
		w.pos[to] = w.pos[from]
		if all := w.kept.attended; all != nil {
			copy(all[to*width:(to+1)*width], all[from*width:(from+1)*width])
		}
	}
	w.pos, w.lens, w.hidden = w.pos[:len(keep)], w.lens[:len(keep)], w.hidden[:len(keep)*d]
	if cap(w.hidden) > 2*len(w.hidden) {
		w.hidden = slices.Clone(w.hidden)
	}
}

// keepLeaving keeps what leaves at a pruning layer that is followed: rows not among keep.
func (w *wholePrompt) keepLeaving(layer int, keep []int) error {
	st, d := w.s.revival.stage(layer), w.e.m.RowWidth()
	if st == nil {
		return nil
	}
	if keep == nil {
		st.active = slices.Clone(w.pos)
		return nil
	}
	var gone []int
	for i, pos := range w.pos {
		if at := len(st.active); at < len(keep) && keep[at] == i {
			st.active = append(st.active, pos)
		} else {
			gone = append(gone, i)
		}
	}
	err := st.left.Keep(len(gone), func(i int) (int32, []float32) { return w.pos[gone[i]], w.hidden[gone[i]*d : (gone[i]+1)*d] })
	if err != nil {
		return fmt.Errorf("engine: policy %s: %w", w.s.text.Policy(), err)
	}
	return nil
}
