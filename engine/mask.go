package engine

import (
	"fmt"
	"slices"

	"terrace/attention"
	"terrace/attention/keyindex"
	"terrace/internal/kernels"
	"terrace/model"
	"terrace/policy"
)

// maskedRows is how many rows of a prompt one masked attention takes, about: the columns that a mask names are gathered once
// a call.
const maskedRows = 2048

// layerMask is the part of a layer's prompt attention that is computed.
type layerMask struct {
	policy.Mask
	block int // tokens: rows of a call start at a row of every block map
}

// maskLayer takes the rows through a layer under a mask: all queries first, then the policy's choice from the weights of the
// last ones, then the attention that is left.
func (w *wholePrompt) maskLayer(layer int) error {
	queries, err := w.projectAll(layer)
	if err != nil {
		return err
	}
	w.kept.queries = queries
	if err := w.denseSums(layer); err != nil {
		return err
	}
	mask, err := w.chooseMask(layer)
	if err != nil {
		return err
	}
	w.kept.mask, w.kept.again = mask, true
	n, final := len(w.pos), layer == w.e.m.Layers-1
	step, from := (maskedRows+mask.block-1)/mask.block*mask.block, 0
	if final {
		from = (n - 1) / mask.block * mask.block
	}
	for lo := from; lo < n; lo += step {
		if err := w.oneBlock(lo, min(lo+step, n), func(p *pass) error { return w.through(p, layer, afterKeys) }); err != nil {
			return err
		}
	}
	return nil
}

// projectAll caches the keys and values of all rows of a layer and returns their queries.
func (w *wholePrompt) projectAll(layer int) ([]float32, error) {
	queries := make([]float32, 0, len(w.pos)*w.e.queryWidth(layer))
	err := w.blocks(0, func(p *pass) error {
		q, err := p.project(layer, keysOnly)
		if err == nil {
			queries = append(queries, floats(q)...)
		}
		return err
	})
	return queries, err
}

// denseSums adds up the attention columns of the prompt's last queries where another policy looks at them: of dense
// attention, as that policy's paper means them.
func (w *wholePrompt) denseSums(layer int) error {
	few, n := w.s.text.Needs().PromptSums, len(w.pos)
	if few == 0 {
		return nil
	}
	return w.oneBlock(n-min(n, few), n, func(p *pass) error {
		_, err := p.read(layer, w.queries(layer))
		return err
	})
}

// chooseMask asks the policy.
func (w *wholePrompt) chooseMask(layer int) (*layerMask, error) {
	t, n := w.s.text, len(w.pos)
	t.KeepQueries(layer, w.kept.queries, n)
	l := t.Layer(layer, w.total)
	weights, err := w.lastWeights(layer)
	if err != nil {
		return nil, err
	}
	l.WeightRows, l.Weights = min(n, t.Needs().Weights), weights
	l.Spread, l.Workers = w.e.pool.Run, w.e.pool.Threads()
	m := &layerMask{}
	t.Policy().Masker.MaskPrompt(l, &m.Mask)
	if i := slices.IndexFunc(m.Heads, func(h policy.HeadMask) bool { return h.Block%16 != 0 }); i >= 0 {
		return nil, fmt.Errorf("engine: policy %s masks blocks of %d tokens, want a multiple of 16: %w", t.Policy(), m.Heads[i].Block, model.ErrUnsupported)
	}
	m.block = m.Unit()
	return m, nil
}

// lastWeights gives a head's softmax weights of the newest Needs.Weights queries over the whole prompt, [rows, n].
func (w *wholePrompt) lastWeights(layer int) (func(head int, dst []float32), error) {
	params, err := w.e.m.AttentionParams(layer)
	if err != nil {
		return nil, err
	}
	a, n, queries := &w.e.m.Layer[layer].Attention, len(w.pos), w.kept.queries
	rows, dim := min(n, w.s.text.Needs().Weights), a.StoredKey()
	views := w.s.text.Seq().Views(layer)
	w.s.flops.Choosing += 2 * int64(a.Heads*dim) * int64(rows) * int64(n)
	return func(head int, dst []float32) {
		q := make([]float32, rows*dim)
		for i := range rows {
			copy(q[i*dim:(i+1)*dim], queries[((n-rows+i)*a.Heads+head)*dim:])
		}
		kernels.Scale(q, a.ScoreScale())
		var tiles keyindex.Tiles
		tiles.Refresh(&views[head/a.Group()], true)
		tiles.Dot(nil, dst, q, rows, dim, n)
		for i := range rows {
			seen := n - rows + i + 1
			row := dst[i*n : i*n+seen]
			if a.Softcap > 0 {
				kernels.Softcap(row, a.Softcap)
			}
			params.Softmax(row, head)
			clear(dst[i*n+seen : (i+1)*n])
		}
	}, nil
}

// part is the mask of the prompt's rows lo to hi-1, as attention takes it; its pairs are counted.
func (m *layerMask) part(w *wholePrompt, layer, lo, hi int) *attention.Sparse {
	rows := policy.Mask{FirstRow: lo, Rows: hi - lo, Keys: m.Keys, Heads: make([]policy.HeadMask, len(m.Heads))}
	s := &attention.Sparse{Heads: make([]attention.HeadMask, len(m.Heads))}
	for h := range m.Heads {
		rows.Heads[h] = m.Heads[h]
		if b := m.Heads[h].Block; b > 0 {
			rows.Heads[h].Start = m.Heads[h].Start[lo/b : (hi+b-1)/b+1]
		}
		w.s.flops.Pairs(w.e.m, layer, 1, rows.Pairs(h))
		of := &rows.Heads[h]
		s.Heads[h] = attention.HeadMask{Dense: of.Dense, Vertical: of.Vertical, Slash: of.Slash, Block: of.Block, Start: of.Start, Cols: of.Cols}
	}
	return s
}
