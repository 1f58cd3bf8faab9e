package vulkan

import (
	"fmt"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/internal/vulkan"
	"terrace/model"
)

const (
	splitTokens = 1024 // of a decode step's attention in one work group
	all         = ^int32(0)
)

// Attend implements model.Backend.
func (b *backend) Attend(p *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	params, err := b.m.AttentionParams(layer)
	if err != nil {
		return nil, err
	}
	for i := range seqs {
		switch s := &seqs[i]; {
		case s.Sparse != nil:
			return nil, fmt.Errorf("vulkan: %s: sparse prefill masks: %w", b.name, model.ErrUnsupported)
		case s.Norm != nil:
			return nil, fmt.Errorf("vulkan: %s: attention that estimates are mixed with: %w", b.name, model.ErrUnsupported)
		case s.Await != nil: // before the lock: what it waits for reads tensors
			if err := s.Await(); err != nil {
				return nil, err
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.mirrors.ahead(layer, seqs); err != nil {
		return nil, fmt.Errorf("vulkan: layer %d: %w", layer, err)
	}
	n, at := q.Shape()[0], 0
	st := b.steps(p)
	in, out := st.input(q, &b.block), st.room(&b.attended, n*params.Heads*params.ValueDim)
	for i := range seqs {
		s := &seqs[i]
		rows := len(s.Pos)
		if at+rows > n {
			return nil, outside(at+rows, n)
		}
		if st.err != nil {
			return nil, st.err
		}
		a := &attending{steps: st, params: params, layer: layer, s: s,
			q: in.from(4 * at * params.Heads * params.KeyDim), out: out.from(4 * at * params.Heads * params.ValueDim)}
		if err := a.sequence(); err != nil {
			return nil, fmt.Errorf("vulkan: layer %d: %w", layer, err)
		}
		at += rows
	}
	if at != n {
		return nil, outside(at, n)
	}
	return st.result(&b.attended, n, params.Heads*params.ValueDim, false)
}

// attending is the attention of one sequence's rows.
type attending struct {
	*steps
	params attention.Params
	layer  int
	s      *attention.Seq
	m      *mirror
	q, out span
	picks  span // [picked] of the selected tokens, a KV head's behind another's
	counts span // [KV heads, 3]
	list   [][]int32
	most   int // columns of the widest head
}

func (a *attending) sequence() error {
	s, p := a.s, &a.params
	keeps := known(s.Views)
	m, err := a.mirrors.sync(a.layer, s.Views)
	if err != nil {
		return err
	}
	if !keeps {
		defer a.mirrors.drop(mirrorKey{}, m)
	}
	a.m, m.done = m, a.mirrors.pass
	if err := a.give(); err != nil {
		return err
	}
	pos, err := a.recorder.give(vulkan.Bytes(s.Pos))
	if err != nil {
		return err
	}
	var sinks span
	if p.Sinks != nil {
		if sinks, err = a.recorder.give(vulkan.Bytes(p.Sinks)); err != nil {
			return err
		}
	}
	n, splits, flags := len(s.Pos), 1, 0
	if p.Sinks != nil {
		flags = 1
	}
	mass := s.ColumnSums != nil && s.ColumnSums.FromRow < n
	var stats span
	if mass {
		flags |= 2
		stats = a.room(&a.scratch.stats, 2*n*p.Heads)
	} else if a.p.Phase == kernels.Decode {
		splits = max(1, groupsOf(a.most, splitTokens))
	}
	rows := 1
	if n > 1 {
		if rows = 8; max(p.KeyDim, p.ValueDim) > 256 {
			rows = 2
		}
	}
	y := a.out
	if splits > 1 {
		y = a.room(&a.scratch.parts, splits*n*p.Heads*(p.ValueDim+2))
	}
	push := func(q, y span, flags int) push {
		return push{}.at(q).at(y).at(m.table).at(a.picks).at(a.counts).at(pos).at(sinks).at(stats).
			int(p.Heads).int(p.Heads / p.KVHeads).int(n).int(m.room).int(p.Window).int(splits).int(flags).float(p.Scale).float(p.Softcap)
	}
	elem, dk, dv := elemCode(m.elem), uint32(p.KeyDim), uint32(p.ValueDim)
	a.run("attend", push(a.q, y, flags), p.Heads, groupsOf(n, rows), splits, elem, dk, dv, uint32(rows))
	if splits > 1 {
		gx, gy := a.grid(n * p.Heads)
		a.run("merge", push(y, a.out, flags), gx, gy, 1, elem, dk, dv)
	}
	if mass && a.err == nil {
		return a.mass(pos, stats)
	}
	return a.err
}

// give uploads which tokens of the mirror count.
func (a *attending) give() error {
	heads := len(a.s.Views)
	counts, picks := make([]int32, 0, 3*heads), []int32(nil)
	a.list = make([][]int32, heads)
	for g := range heads {
		tiles, picked, first := int32(len(a.m.heads[g])), all, int32(len(picks))
		columns := int(tiles) * tileTokens
		if a.s.Select != nil && a.s.Select[g] != nil {
			a.list[g] = a.s.Select[g]
			picks = append(picks, a.m.codes(g, a.list[g])...)
			picked = int32(len(a.list[g]))
			columns = len(a.list[g])
		}
		counts = append(counts, tiles, picked, first)
		a.most = max(a.most, columns)
	}
	err := a.reserve(4*(len(counts)+len(picks)+len(a.s.Pos)+a.params.Heads) + 4<<10)
	if err == nil {
		a.counts, err = a.recorder.give(vulkan.Bytes(counts))
	}
	if err == nil {
		a.picks, err = a.recorder.give(vulkan.Bytes(picks))
	}
	return err
}

// elemCode is the number that kernels know a type by.
func elemCode(e kvpage.Elem) uint32 {
	switch e {
	case kvpage.F16:
		return 1
	case kvpage.BF16:
		return 2
	}
	return 0
}
