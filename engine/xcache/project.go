package xcache

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/model"
	"terrace/offload"
)

// Projector makes blocks of rows again, with a backend of its own.
type Projector struct {
	m       *model.Model
	shape   offload.Shape // of the blocks
	turn    func(layer int, k, v *tensor.Dense)
	backend model.Backend
	keys    model.KeyProjector

	mu sync.Mutex
	p  model.Pass
}

// NewProjector is one for a model on the CPU; turn is what happens to keys and values before they are stored. Close it.
func NewProjector(m *model.Model, shape offload.Shape, threads int, turn func(layer int, k, v *tensor.Dense)) (*Projector, error) {
	b, err := model.OpenBackend("native", m, model.BackendOptions{Threads: threads})
	if err != nil {
		return nil, fmt.Errorf("xcache: %w", err)
	}
	keys, ok := b.(model.KeyProjector)
	if !ok {
		return nil, errors.Join(fmt.Errorf("xcache: backend %s does not project keys alone: %w", b.Name(), model.ErrUnsupported), b.Close())
	}
	return &Projector{m: m, shape: shape, turn: turn, backend: b, keys: keys}, nil
}

// Close gives the backend's threads back.
func (p *Projector) Close() error { return p.backend.Close() }

// blocks projects the rows x [n, Hidden] of blocks of a layer, all of one arithmetic, and writes a block's bytes to each of dst.
func (p *Projector) blocks(layer int, of []block, x []float32, dst [][]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, n := p.shape.GroupTokens, len(of)*p.shape.GroupTokens
	p.p = model.Pass{Phase: of[0].phase, Pos: slices.Grow(p.p.Pos[:0], n), Len: slices.Grow(p.p.Len[:0], n)}
	for _, b := range of {
		for i := range t {
			p.p.Pos, p.p.Len = append(p.p.Pos, b.first+int32(i)), append(p.p.Len, b.length)
		}
	}
	k, v, err := p.keys.ProjectKeys(&p.p, layer, tensor.New(tensor.WithShape(n, p.m.Hidden), tensor.WithBacking(x)))
	if err != nil {
		return fmt.Errorf("xcache: layer %d: %w", layer, err)
	}
	if p.turn != nil {
		p.turn(layer, k, v)
	}
	l, heads := p.shape.PageOf(layer), p.shape.KVHeads(layer)
	ks, vs, page := model.Float32s(k), model.Float32s(v), l.PageBytes()
	for i := range of {
		for g := range heads {
			attention.Append(l, dst[i][g*page:(g+1)*page], 0, t, ks[i*t*heads*l.KeyDim+g*l.KeyDim:], heads*l.KeyDim, vs[i*t*heads*l.ValueDim+g*l.ValueDim:], heads*l.ValueDim)
		}
	}
	return nil
}

// Cost is what a token of a layer takes; the zero Cost where it keeps nothing.
func (p *Projector) Cost(layer int) Cost {
	if !p.shape.Layers.Keeps(layer) {
		return Cost{}
	}
	kv := p.shape.Layers[layer].KV
	return Cost{KVBytes: p.shape.RecordBytes(layer) / p.shape.GroupTokens, RowBytes: 4 * p.m.Hidden, FLOPs: 2 * float64(p.m.Hidden) * float64(kv.Numbers())}
}

// FLOPRate measures the projection of a layer: FLOPs a second, the best of three of 128 rows.
func (p *Projector) FLOPRate(layer int) (float64, error) {
	blocks := max(1, 128/p.shape.GroupTokens)
	x := make([]float32, blocks*p.shape.GroupTokens*p.m.Hidden)
	for i := range x {
		x[i] = float32(i%31-15) / 16
	}
	of, dst := make([]block, blocks), make([][]byte, blocks)
	for i := range of {
		of[i], dst[i] = block{phase: kernels.Prefill, first: int32(i * p.shape.GroupTokens), length: int32(blocks * p.shape.GroupTokens)}, make([]byte, p.shape.RecordBytes(layer))
	}
	best := time.Duration(0)
	for range 4 { // the first one reads the weights
		begun := time.Now()
		if err := p.blocks(layer, of, x, dst); err != nil {
			return 0, err
		}
		if took := time.Since(begun); best == 0 || took < best {
			best = took
		}
	}
	return p.Cost(layer).FLOPs * float64(len(x)/p.m.Hidden) / max(best.Seconds(), 1e-9), nil
}
