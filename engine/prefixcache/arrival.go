package prefixcache

import (
	"context"

	"terrace/engine"
	"terrace/kvmanager"
	"terrace/kvmanager/contexts"
)

// waiting is a session's KV that comes layer by layer while the prompt's rest is read.
type waiting struct {
	p     *Prefix
	k     *keeping        // nil: a compressed context
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
	s.OfLength(len(p.ids))
	s.Expect(p.ids[:n], false, w)
	return p.reused, nil
}

// openWhole opens a session on a compressed context; nil where it is not stored, or not in time. With early its layers may still be on
// their way.
func (p *Prefix) openWhole(ctx context.Context, early bool) (*engine.Session, engine.Reused, error) {
	s, err := p.c.e.NewSession(nil)
	if err != nil {
		return nil, engine.Reused{}, err
	}
	if err = p.fill(ctx, s, early); err != nil || p.reused.Tokens == 0 {
		s.Close()
		return nil, engine.Reused{}, err
	}
	return s, p.reused, nil
}

// ResumeContext is Resume of a compressed context: what the session reads next is not compressed. Nothing where it is not stored, or not in
// time, or where the session is no empty one under full attention.
func (p *Prefix) ResumeContext(ctx context.Context, s *engine.Session) (engine.Reused, error) {
	if p == nil || !p.whole || p.fetch == nil && p.arrival == nil {
		return engine.Reused{}, nil
	}
	var err error
	if s.Tokens() == 0 && s.Causal() && s.Policy().Lossless() {
		err = p.fill(ctx, s, true)
	}
	if p.reused.Tokens == 0 || err != nil || p.fetch != nil {
		p.Close()
	}
	return p.reused, err
}

// fill gives an empty session a compressed context, if it is stored and in time.
func (p *Prefix) fill(ctx context.Context, s *engine.Session, early bool) error {
	p.reused = engine.Reused{}
	if p.fetch != nil {
		return p.fetchWhole(ctx, s)
	}
	var records []*contexts.Record
	there := !early
	if early {
		records, there = p.arrival.Begun(ctx)
	} else {
		records = p.arrival.Whole(ctx)
	}
	if !p.all(records) {
		return nil
	}
	if there {
		n, err := p.c.restore(s, p.ids, records, true)
		if n > 0 && err == nil {
			p.taken(n)
		}
		return err
	}
	w := &waiting{p: p, ctx: ctx}
	if w.spans, _ = p.c.parseAll(records); len(w.spans) < len(records) {
		return nil
	}
	p.reused = engine.Reused{Tokens: len(p.ids), Tier: p.arrival.Tier()}
	s.OfLength(len(p.ids))
	s.Expect(p.ids, true, w)
	return nil
}

// fetchWhole is fill from records that come whole, one after another.
func (p *Prefix) fetchWhole(ctx context.Context, s *engine.Session) error {
	rule := p.c.store.Rule()
	first := p.fetch.Next(ctx, rule, len(p.ids))
	if first == nil || !p.fits(first, 0, 0) {
		return nil
	}
	records := []*contexts.Record{first}
	if first.Parts > 1 {
		rest := make([]contexts.Key, first.Parts-1)
		for i := range rest {
			rest[i] = contexts.PartKey(p.context, i+1)
		}
		more := p.c.store.Fetch(ctx, rest)
		defer more.Close()
		for i := range rest {
			r := more.Next(ctx, rule, len(p.ids))
			if r == nil || !p.fits(r, i+1, first.Parts) {
				return nil
			}
			records = append(records, r)
		}
		more.Used(len(rest), records[1:])
		p.fetch.Join(more)
	}
	p.fetch.Used(1, records[:1])
	n, err := p.c.restore(s, p.ids, records, true)
	if n > 0 && err == nil {
		p.reused = engine.Reused{Tokens: len(p.ids), Tier: p.fetch.Tier()}
	}
	return err
}

// all reports whether records are those of the whole compressed context.
func (p *Prefix) all(records []*contexts.Record) bool {
	for i, r := range records {
		if !p.fits(r, i, len(records)) {
			return false
		}
	}
	return len(records) > 0
}

// taken is the end of an arrival, of which the blocks of n tokens were used, or all of a compressed context.
func (p *Prefix) taken(n int) {
	p.reused = engine.Reused{}
	if n > 0 {
		p.arrival.Used(p.records(n))
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
		w.p.taken(w.tokens())
	}
	return nil
}

// tokens are those of the text that the records stand for.
func (w *waiting) tokens() int {
	if w.p.whole {
		return len(w.p.ids)
	}
	return len(w.spans) * w.p.c.block
}

// Lost implements engine.Arrival: blocks of the beginning that came wholly are used. A compressed context of which a part is gone
// is compressed again, as it was.
func (w *waiting) Lost(s *engine.Session) error {
	if w.p.whole {
		return w.again(s)
	}
	n, err := w.p.adopt(s, w.p.arrival.Whole(w.ctx), w.k)
	w.p.taken(n)
	return err
}

// again gives the session its compressed context, computed.
func (w *waiting) again(s *engine.Session) error {
	p := w.p
	if records := p.arrival.Whole(w.ctx); p.all(records) {
		if n, err := p.c.restore(s, p.ids, records, true); n > 0 || err != nil {
			p.taken(n)
			return err
		}
	}
	p.taken(0)
	f, err := p.c.e.NewSession(p.under)
	if err != nil {
		return err
	}
	defer f.Close()
	NoteRanks(f)
	if err := f.Prefill(w.ctx, p.ids, engine.PrefillHooks{}); err != nil {
		return err
	}
	records, err := p.c.parts(f, p, p.c.ranksOf(f))
	if err != nil {
		return err
	}
	p.c.store.Put(records...)
	n, err := p.c.restore(s, p.ids, records, true)
	if err == nil && n == 0 {
		err = kvmanager.ErrBudget
	}
	return err
}

// Close implements engine.Arrival.
func (w *waiting) Close() { w.p.Close() }
