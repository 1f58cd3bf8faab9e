package engine

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/attention/keyindex"
	"terrace/internal/kernels"
	"terrace/model"
	"terrace/policy"
)

// maskedRows is how many rows of a prompt one masked attention takes, about: the columns that a mask names are gathered once
// a call.
const maskedRows = 2048

// masks reports whether only a part of a layer's prompt attention is computed.
func (r *policyRun) masks(layer int) bool { return r.set.Masker != nil && r.global(layer) }

// mask takes the rows through a layer under a mask: all queries first, then the policy's choice from the weights of the last
// ones, then the attention that is left.
func (p *promptPass) mask(layer int) error {
	r, width := p.s.policy, p.e.m.Heads*p.e.m.KeyDim
	queries := make([]float32, len(p.pos)*width)
	err := p.chunks(func(lo, hi int) error {
		q, err := p.project(layer, lo, hi)
		if err == nil {
			copy(queries[lo*width:], floats(q))
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := p.denseMass(layer, queries, width); err != nil {
		return err
	}
	m, err := p.chooseMask(layer, queries)
	if err != nil {
		return err
	}
	if err := p.attendMasked(layer, queries, m); err != nil {
		return err
	}
	err = r.after(p.s, layer, p.total, true, true)
	if st := &r.state[layer]; st.queries != nil { // decoding wants the newest few, if any
		few := max(0, min(st.rows, r.needs.Queries))
		st.queries, st.rows = slices.Clone(st.queries[(st.rows-few)*width:]), few
	}
	return err
}

// denseMass sums the softmax weights of the prompt's last queries where another policy looks at them: of dense attention,
// as that policy's paper means them.
func (p *promptPass) denseMass(layer int, queries []float32, width int) error {
	r, n := p.s.policy, len(p.pos)
	if r.needs.PromptMass == 0 {
		return nil
	}
	from := n - min(n, r.needs.PromptMass)
	_, err := p.attend(layer, tensor.New(tensor.WithShape(n-from, width), tensor.WithBacking(queries[from*width:])), from, n)
	return err
}

// chooseMask asks the policy.
func (p *promptPass) chooseMask(layer int, queries []float32) (*policy.Mask, error) {
	r, n := p.s.policy, len(p.pos)
	st := &r.state[layer]
	st.queries, st.rows = queries, n
	l := r.observe(p.s, layer, p.total)
	l.WeightRows, l.Weights = min(n, r.needs.Weights), p.lastWeights(layer, queries)
	l.Spread, l.Workers = r.pool.Run, r.pool.Threads()
	m := &policy.Mask{}
	r.set.Masker.MaskPrompt(l, m)
	for h := range m.Heads {
		if m.Heads[h].Block%16 != 0 {
			return nil, fmt.Errorf("engine: policy %s masks blocks of %d tokens, want a multiple of 16: %w", r.set, m.Heads[h].Block, model.ErrUnsupported)
		}
	}
	return m, nil
}

// lastWeights gives a head's softmax weights of the newest Needs.Weights queries over the whole prompt, [rows, n].
func (p *promptPass) lastWeights(layer int, queries []float32) func(head int, dst []float32) {
	m, r, n := p.e.m, p.s.policy, len(p.pos)
	rows, dim := min(n, r.needs.Weights), m.KeyDim
	views := p.s.seq.Views(layer)
	p.s.work.Choosing += 2 * int64(m.Heads*dim) * int64(rows) * int64(n)
	return func(head int, dst []float32) {
		q := make([]float32, rows*dim)
		for i := range rows {
			copy(q[i*dim:(i+1)*dim], queries[((n-rows+i)*m.Heads+head)*dim:])
		}
		kernels.Scale(q, m.Scale())
		var tiles keyindex.Tiles
		tiles.Refresh(&views[head/m.Group()], true)
		tiles.Dot(nil, dst, q, rows, dim, n)
		for i := range rows {
			seen := n - rows + i + 1
			row := dst[i*n : i*n+seen]
			if m.AttnSoftcap > 0 {
				kernels.Softcap(row, m.AttnSoftcap)
			}
			kernels.Softmax(row)
			clear(dst[i*n+seen : (i+1)*n])
		}
	}
}

// attendMasked computes what the mask leaves, and takes the rows through the rest of the layer; in the last layer only the
// last row goes on.
func (p *promptPass) attendMasked(layer int, queries []float32, m *policy.Mask) error {
	n, width, final := len(p.pos), p.e.m.Heads*p.e.m.KeyDim, layer == p.e.m.Layers-1
	block := 1 // rows of a call start at a row of every block map
	for h := range m.Heads {
		if b := m.Heads[h].Block; b > 0 {
			block = leastMultiple(block, b)
		}
	}
	step := (maskedRows + block - 1) / block * block
	from := 0
	if final {
		from = (n - 1) / block * block
	}
	for lo := from; lo < n; lo += step {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		hi := min(lo+step, n)
		q := tensor.New(tensor.WithShape(hi-lo, width), tensor.WithBacking(queries[lo*width:hi*width]))
		pass := p.pass(lo, hi)
		p.e.seqs.seqs = append(p.e.seqs.seqs[:0], attention.Seq{Pos: pass.Pos, Views: p.s.seq.Views(layer), Sparse: p.part(m, lo, hi)})
		attended, err := p.e.backend.Attend(pass, layer, q, p.e.seqs.seqs)
		if err != nil {
			return err
		}
		if final {
			lo, attended = hi-1, lastRows(attended, 1)
		}
		if err := p.finish(layer, lo, hi, attended); err != nil {
			return err
		}
	}
	return nil
}

// part is the mask of the prompt's rows lo to hi-1, as attention takes it; its pairs are counted.
func (p *promptPass) part(m *policy.Mask, lo, hi int) *attention.Sparse {
	rows := policy.Mask{FirstRow: lo, Rows: hi - lo, Keys: m.Keys, Heads: make([]policy.HeadMask, len(m.Heads))}
	s := &attention.Sparse{Heads: make([]attention.HeadMask, len(m.Heads))}
	for h := range m.Heads {
		rows.Heads[h] = m.Heads[h]
		if b := m.Heads[h].Block; b > 0 {
			rows.Heads[h].Start = m.Heads[h].Start[lo/b : (hi+b-1)/b+1]
		}
		p.s.work.pairs(p.e.m, 1, rows.Pairs(h))
		s.Heads[h] = attention.HeadMask(rows.Heads[h])
	}
	return s
}

// leastMultiple is the least common multiple of two positive numbers.
func leastMultiple(a, b int) int {
	x, y := a, b
	for y > 0 {
		x, y = y, x%y
	}
	return a / x * b
}
