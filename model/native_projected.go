package model

import (
	"gorgonia.org/tensor"
)

// embedProjected is Embed for a model whose embedding is narrower than its hidden rows (OPT-350m): the token's row goes
// through EmbedIn before positions are added.
func (b *native) embedProjected(p *Pass, ids []int32) (*tensor.Dense, error) {
	m, n := b.m, len(ids)
	width := m.Params.Embed.Cols
	narrow := b.ws.floats(&b.ws.narrow, n*width)
	if err := m.checkIDs(ids); err != nil {
		return nil, err
	}
	if err := m.Params.Embed.Gather(narrow, ids); err != nil {
		return nil, err
	}
	hidden := b.ws.dense(&b.ws.hidden, n, m.Hidden)
	x := floats(hidden)
	if err := b.matmul(p.arithmetic(), narrow, n, product{w: m.Params.EmbedIn, dst: x}); err != nil {
		return nil, err
	}
	if m.Params.Positions == nil {
		return hidden, nil
	}
	return hidden, b.addPositions(p, x)
}

// projectOut takes hidden rows x [n, D] to the width of the head.
func (b *native) projectOut(p *Pass, x []float32, n int, norm NormParams) ([]float32, error) {
	out := b.m.Params.EmbedOut
	narrow := b.ws.floats(&b.ws.narrow, n*out.Rows)
	return narrow, b.matmulNormed(p.arithmetic(), x, n, norm, product{w: out, dst: narrow})
}
