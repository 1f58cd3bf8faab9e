package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorgonia.org/tensor"

	"terrace/engine/tier"
	"terrace/engine/xcache"
	"terrace/internal/tierspec"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/offload"
)

// hiddenRows is the engine's side of an ssd tier that keeps the rows of some layers instead of their keys and values (key xcache).
type hiddenRows struct {
	project *xcache.Projector
	store   *xcache.Store // nil = no layer keeps rows
	choice  xcache.Choice
}

// openHiddenRows says which layers keep rows, where a tier asks for that; nil = none does. The store is still to be opened, of layers'
// shapes as the choice has them.
func openHiddenRows(e *Engine, lower []tier.Tier) (*hiddenRows, error) {
	t := lower[len(lower)-1]
	for i := range lower {
		if lower[i].XCache != 0 && len(lower) > 1 {
			return nil, fmt.Errorf("engine: tier %s: xcache beside another tier below host memory: want this one alone: %w", lower[i].Name(), ErrOption)
		}
	}
	if t.XCache == 0 {
		return nil, nil
	}
	if err := checkHiddenRows(e, t); err != nil {
		return nil, err
	}
	turn := func(layer int, k, v *tensor.Dense) {
		e.turnKeys(layer, k)
		e.turnValues(layer, v)
	}
	p, err := xcache.NewProjector(e.m, e.shape(), e.o.Threads, turn)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	h := &hiddenRows{project: p}
	costs := make([]xcache.Cost, e.m.Layers)
	for layer := range costs {
		costs[layer] = p.Cost(layer)
	}
	if t.XCache != tierspec.XCacheByRate {
		h.choice = xcache.Spread(costs, float64(t.XCache))
		return h, nil
	}
	rates := xcache.Rates{TierBytes: e.o.TierRate}
	if rates.TierBytes == 0 && e.o.Machine.Disk == nil {
		r, err := offload.MeasureStorage(context.Background(), t.Place, offload.MeasureOptions{SizeBytes: min(32<<20, t.CapacityBytes), Each: briefly, NoDirect: t.Buffered, NoStore: true})
		if err != nil {
			return nil, closing(p, fmt.Errorf("engine: tier %s: %w", t.Name(), err))
		}
		rates.TierBytes = r.StreamRead
	}
	if rates.FLOPs, err = p.FLOPRate(e.cache.Next(-1)); err != nil {
		return nil, closing(p, fmt.Errorf("engine: %w", err))
	}
	h.choice = xcache.Choose(costs, rates)
	return h, nil
}

// briefly is how long each figure of a disk that 'infer profile' did not measure is measured.
const briefly = 60 * time.Millisecond

func closing(p *xcache.Projector, err error) error { return errors.Join(err, p.Close()) }

// checkHiddenRows refuses what cannot be projected again from a layer's rows, or has no blocks of tokens that follow each other.
func checkHiddenRows(e *Engine, t tier.Tier) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("engine: tier %s: xcache "+format+": leave it out: %w", append(append([]any{t.Name()}, args...), model.ErrUnsupported)...)
	}
	switch {
	case t.Kind != tier.SSD:
		return refuse("on a tier that is no plain ssd")
	case !e.policy.Lossless():
		return refuse("under policy %s, which drops or picks tokens: blocks go and come whole", e.policy)
	case e.o.Backend != "native":
		return refuse("with backend %s, whose projection the CPU does not repeat bit for bit", e.o.Backend)
	case e.o.KType.Quantised() || e.o.VType.Quantised():
		return refuse("with %v keys and %v values, which take fewer bytes than rows", e.o.KType, e.o.VType)
	case e.m.Streamed() != nil:
		return refuse("beside weights that are read as they are needed")
	case e.m.RowWidth() != e.m.Hidden:
		return refuse("of a model whose rows are more than the residual")
	case e.m.LongRopeAt() > 0:
		return refuse("of a model that turns keys by the text's length (longrope)")
	}
	for i := range e.m.Layer {
		switch l := &e.m.Layer[i]; {
		case l.Recurs():
			return refuse("of a model with recurrent layers (layer %d)", i)
		case l.Latent != nil:
			return refuse("of latent keys, which take fewer bytes than rows (layer %d)", i)
		case l.Index != nil:
			return refuse("of a trained indexer's keys (layer %d)", i)
		case e.cache.Reads(i) && !e.cache.Keeps(i):
			return refuse("of layers that read another's keys and values (layer %d)", i)
		}
	}
	return nil
}

// some reports whether any layer keeps rows.
func (h *hiddenRows) some() bool {
	if h == nil {
		return false
	}
	n, _ := h.choice.Count()
	return n > 0
}

// below is the shape of the store that the engine's lies on.
func (h *hiddenRows) below(e *Engine) offload.Shape {
	if !h.some() {
		return e.shape()
	}
	return xcache.Shape(h.options(e))
}

func (h *hiddenRows) options(e *Engine) xcache.Options {
	layers, _ := h.choice.Count()
	o := xcache.Options{Shape: e.shape(), Hidden: e.m.Hidden, Layers: h.choice.Layers}
	// Two layers' rows of a chunk, one of them on its way down, and of each text and layer a block that is not full.
	rows := 2*e.o.ChunkTokens + layers*o.Shape.GroupTokens*max(1, e.o.Batch)
	o.ReserveBytes = int64(rows) * h.rowBytes(e)
	return o
}

// use adds what was chosen and done to the tiers' accounts.
func (h *hiddenRows) use(u *TierUse) {
	if h == nil {
		return
	}
	if u.Notice != "" {
		u.Notice += "; "
	}
	if u.Notice += h.choice.String(); h.store != nil {
		u.XCache = h.store.Use()
	}
}

// rowBytes is what a row that waits takes.
func (h *hiddenRows) rowBytes(e *Engine) int64 { return 4 * int64(e.m.Hidden) }

// on puts the engine's store on one of below.
func (h *hiddenRows) on(store offload.Store, e *Engine) offload.Store {
	if !h.some() {
		return store
	}
	h.store = xcache.New(store, h.project, h.options(e))
	return h.store
}

func (h *hiddenRows) close() error {
	if h == nil {
		return nil
	}
	return h.project.Close()
}

// keep shows the store the pass's rows at a layer, whose keys and values the cache has taken.
func (h *hiddenRows) keep(p *pass, layer int) {
	if !h.some() || !h.store.Keeps(layer) {
		return
	}
	x, at, d := floats(p.hidden), 0, p.e.m.Hidden
	for i := range p.kv.Rows {
		r := &p.kv.Rows[i]
		n := len(r.Pos)
		if seq := r.Sequence.Seq(); r.Err == nil {
			h.store.Keep(seq.Home(), layer, p.rows.Phase, x[at*d:(at+n)*d], r.Pos, p.rows.Len[at:at+n], func(block int) bool { return kvmanager.Leaves(seq, layer, block) })
		}
		at += n
	}
}

// besideRow is what each row of a prompt that passes layer by layer takes beside itself: a layer's rows wait while the layer before goes
// down.
func (h *hiddenRows) besideRow(e *Engine) int {
	if !h.some() {
		return 0
	}
	return int(2 * h.rowBytes(e))
}

// lend lets that many rows' blocks wait; minus n takes it back.
func (h *hiddenRows) lend(e *Engine, n int) {
	if h.some() {
		h.store.Lend(int64(n) * int64(h.besideRow(e)))
	}
}
