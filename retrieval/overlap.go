package retrieval

import (
	"slices"

	"terrace/internal/clock"
	"terrace/internal/guard"
)

// overlap takes a drive's answers to the score requests of the next layer while this one is still computed: it decides what
// that layer reads and begins to fetch it, so that a layer's requests and its fetches both hide behind compute. Between
// start and join nothing else touches the texts of the pass.
type overlap struct {
	stop chan struct{} // closed: what has no answer yet is left to the layer itself
	done chan struct{} // closed: the others are set; nil = nothing is under way
	err  error
	pass *Pass
	errs []error // of the pass's rows: join notes them, so that whoever looks at the rows meanwhile sees none come
}

// Overlap takes the answers about a layer that are there, and waits for the others in the background until the next Append.
func (p *Pass) Overlap(layer int) {
	p.f.Yield()
	defer p.f.Yield()
	if layer >= len(p.f.o.Shape.Layers) {
		return
	}
	waiting := false
	for i := range p.Rows {
		d := p.Rows[i].Sequence.res.settling()
		switch {
		case p.Rows[i].Err != nil || !d.asking(layer):
		case !d.answered(layer):
			waiting = true
		default:
			p.fail(i, d.c.settle(layer))
		}
	}
	if waiting {
		p.f.overlap.start(p, layer)
	}
}

func (o *overlap) start(p *Pass, layer int) {
	o.stop, o.done, o.err = make(chan struct{}), make(chan struct{}), nil
	o.pass, o.errs = p, slices.Grow(o.errs[:0], len(p.Rows))[:len(p.Rows)]
	clear(o.errs)
	inBackground(p.f, func() { o.run(p, layer) })
}

// run settles the texts' layer one after another, as their answers come.
func (o *overlap) run(p *Pass, layer int) {
	defer close(o.done)
	o.err = guard.Run(func() error {
		for i := range p.Rows {
			d := p.Rows[i].Sequence.res.settling()
			if p.Rows[i].Err != nil || !d.asking(layer) {
				continue
			}
			clock.Wait(p.f.o.Clock, d.layers[layer].request.done, o.stop)
			if !d.answered(layer) {
				return nil
			}
			o.errs[i] = d.c.settle(layer)
		}
		return nil
	})
}

// join ends what start has begun: an answer that is being taken is, those that have not come are not waited for.
func (o *overlap) join(f *Shared) error {
	if o.done == nil {
		return nil
	}
	close(o.stop)
	waitFor(f, o.done)
	o.done = nil
	for i, err := range o.errs {
		o.pass.fail(i, err)
	}
	return o.err
}
