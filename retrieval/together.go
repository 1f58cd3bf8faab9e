package retrieval

import (
	"terrace/internal/clock"
	"terrace/internal/kernels"
	"terrace/internal/trace"
	"terrace/policy"
)

// together is what the texts of a pass do at the same time, a task a text, where they share nothing but the threads: each rank what
// it reads of a layer, and lay out what it reads. One section of the pool for all texts costs less than one for each, between which its
// workers go to sleep.
type together struct {
	pass   *Pass
	layer  int
	texts  []int     // places in the pass's rows
	errs   []error   // of them
	built  []*cached // what was picked is here, and is to be laid out
	tiles  []int     // of them, and of those before
	rank   func(worker, i int)
	layOut func(worker, i int)
	along  alongside
}

func (w *together) init(p *Pass) {
	if w.pass == nil {
		w.pass, w.rank, w.layOut = p, w.rankOne, w.layOutOne
		w.along.pass = p
	}
	w.along.layer = 0
}

// prepare selects in a layer ahead of its turn; what can be selected by what is there waits for the attention of the layer that is current.
func (w *together) prepare(current, layer int) {
	p := w.pass
	w.layer, w.texts, w.errs = layer, w.texts[:0], w.errs[:0]
	w.along.layer = 0
	if w.waits(current) {
		w.along.layer = layer
	}
	if f := p.f; w.along.layer == 0 && f.o.Pool.Threads() > 1 && len(p.Rows) > 1 && !clock.Or(f.o.Clock).Modelled() {
		for i := range p.Rows {
			if c := p.Rows[i].ahead(layer); c != nil {
				w.texts, w.errs = append(w.texts, i), append(w.errs, nil)
			}
		}
	}
	if len(w.texts) > 1 {
		span := p.f.o.Trace.Layer(trace.Score, "choose", layer)
		p.f.o.Pool.Run(len(w.texts), w.rank)
		span.End()
	} else {
		w.texts = w.texts[:0]
	}
	ranked := w.texts
	for i := range p.Rows {
		r := &p.Rows[i]
		switch {
		case r.Err != nil || r.Reading != Step:
		case w.along.layer > 0 && r.ahead(layer) != nil:
		case len(ranked) > 0 && ranked[0] == i:
			err := w.errs[len(w.texts)-len(ranked)]
			if ranked = ranked[1:]; err == nil {
				err = r.Sequence.res.(*cached).fetch(layer)
			}
			p.fail(i, err)
		default:
			p.fail(i, r.Sequence.res.prepare(layer))
		}
	}
}

// ahead is the residency of a decode step's row whose selection in a layer can be made now, by what is the text's own; nil = it
// cannot.
func (r *Rows) ahead(layer int) *cached {
	c, ok := r.Sequence.res.(*cached)
	if !ok || r.Err != nil || r.Reading != Step || !c.serves(layer) || c.drive.serves(layer) || c.t.sel.below != nil {
		return nil
	}
	kind := c.t.obs.needs.QueryOf(layer)
	if kind == policy.QueryExact || c.t.sel.ahead(layer) == nil || c.t.afterSwaps(layer) {
		return nil
	}
	return c
}

func (w *together) rankOne(_, i int) {
	t := w.pass.Rows[w.texts[i]].Sequence
	c := t.res.(*cached)
	t.apart = true
	w.errs[i] = c.rank(w.layer, t.sel.ahead(w.layer))
	t.apart = false
}

// pool is the threads that a text may spread its own work over; nil = it has one of them to itself, beside other texts.
func (t *Sequence) pool() *kernels.Pool {
	if t.apart {
		return nil
	}
	return t.f.o.Pool
}

// add notes what is to be laid out.
func (w *together) add(c *cached) {
	if c.tiles > 0 {
		before := 0
		if n := len(w.tiles); n > 0 {
			before = w.tiles[n-1]
		}
		w.built, w.tiles = append(w.built, c), append(w.tiles, before+c.tiles)
		c.tiles = 0
	}
}

// build lays out what was noted.
func (w *together) build() {
	if n := len(w.tiles); n > 0 {
		w.pass.f.o.Pool.Run(w.tiles[n-1], w.layOut)
		clear(w.built)
		w.built, w.tiles = w.built[:0], w.tiles[:0]
	}
}

func (w *together) layOutOne(worker, i int) {
	at, before := 0, 0
	for i >= w.tiles[at] {
		before = w.tiles[at]
		at++
	}
	c := w.built[at]
	c.cache.Build(i-before, &c.scratch[worker])
}
