package prefixcache

import (
	"context"

	"terrace/engine"
	"terrace/kvmanager"
)

// waiting is a session's KV that comes layer by layer while the prompt's rest is read.
type waiting struct {
	p     *Prefix
	k     *keeping
	ctx   context.Context // of Resume: the request's
	spans []*restored
	next  int // layer
}

// expect gives an empty session the prefix as it comes: the first layers are there, the others follow while these are computed. Where
// that takes too long, it is the blocks of the beginning that are there, as with Fetch.
func (p *Prefix) expect(ctx context.Context, s *engine.Session, k *keeping) (engine.Reused, error) {
	records, whole := p.arrival.Begun(ctx)
	if whole {
		n, err := p.adopt(s, records, k)
		p.taken(n)
		return p.reused, err
	}
	for i, r := range records {
		if !p.continues(r, i) {
			records = records[:i]
			break
		}
	}
	w := &waiting{p: p, k: k, ctx: ctx}
	n := 0
	if w.spans, n = p.c.parseAll(records); n == 0 {
		p.Close()
		return engine.Reused{}, nil
	}
	k.next = len(w.spans)
	p.reused = engine.Reused{Tokens: n, Tier: p.arrival.Tier()}
	s.Expect(p.ids[:n], w)
	return p.reused, nil
}

// taken is the end of an arrival, of which the blocks of n tokens were used.
func (p *Prefix) taken(n int) {
	p.reused = engine.Reused{}
	if n > 0 {
		p.arrival.Used(n / p.c.block)
		p.reused = engine.Reused{Tokens: n, Tier: p.arrival.Tier()}
	}
	p.Close()
}

// Layer implements engine.Arrival.
func (w *waiting) Layer(kv *kvmanager.Sequence, layer int) error {
	if layer < w.next {
		return nil
	}
	sections := make([][]byte, len(w.spans))
	for i := range w.spans {
		b, err := w.p.arrival.Section(w.ctx, i, 1+layer)
		if err != nil {
			return err
		}
		sections[i] = b
	}
	for i, x := range w.spans {
		main, _ := x.layer(layer, sections[i])
		if err := kv.Restore(layer, main, nil); err != nil {
			return err
		}
	}
	if w.next++; w.next == w.p.c.e.Model().Layers {
		w.p.taken(len(w.spans) * w.p.c.block)
	}
	return nil
}

// Lost implements engine.Arrival: blocks of the beginning that came wholly are used.
func (w *waiting) Lost(s *engine.Session) error {
	n, err := w.p.adopt(s, w.p.arrival.Whole(w.ctx), w.k)
	w.p.taken(n)
	return err
}

// Close implements engine.Arrival.
func (w *waiting) Close() { w.p.Close() }
