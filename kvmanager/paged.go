package kvmanager

import (
	"slices"

	"terrace/attention"
)

// paged is a layer store in host memory: pages of one layer and KV head each, so that dropping tokens of one head frees memory.
type paged struct {
	s     *Sequence
	pages []ownedPages // as Sequence.heads
}

func newPaged(s *Sequence) *paged {
	p := &paged{s: s, pages: make([]ownedPages, len(s.lists.all))}
	for layer := range s.m.layers {
		for i := s.m.first[layer]; i < s.m.first[layer+1]; i++ {
			p.pages[i] = ownedPages{m: s.m, of: s.m.layers[layer].classes[mainPages]}
		}
	}
	return p
}

func (p *paged) at(layer, kvHead int) *ownedPages {
	return &p.pages[p.s.m.first[layer]+kvHead]
}

func (p *paged) reserve(layer int, more []int) error {
	for g, n := range more {
		if err := p.at(layer, g).reserve(&p.s.lists.at(layer, g).main, n); err != nil {
			return err
		}
	}
	return nil
}

func (p *paged) unreserve(layer int) error {
	for g := range p.s.m.heads(layer) {
		p.at(layer, g).unreserve(&p.s.lists.at(layer, g).main)
	}
	return nil
}

func (p *paged) appended(int, int) {}

func (p *paged) edit(int, int) error { return nil }

func (p *paged) own(layer, kvHead, from, to int) error {
	return p.at(layer, kvHead).ownRange(&p.s.lists.at(layer, kvHead).main, from, to)
}

func (p *paged) edited(layer, _ int) error { return p.unreserve(layer) }

func (p *paged) extra(layer, kvHead, from, to int) (n int64) {
	o := p.at(layer, kvHead)
	t := o.of.tokens
	for i := range o.refs {
		switch shared := o.shared(i); {
		case i*t >= to && !shared:
			n -= o.of.bytes
		case i*t < to && (i+1)*t > from && shared:
			n += o.of.bytes
		}
	}
	return n
}

func (p *paged) drop(layer, n, _ int) int {
	for g := range p.s.m.heads(layer) {
		o := p.at(layer, g)
		for _, r := range o.refs[:n] {
			o.m.drop(o.of, r)
		}
		o.refs = slices.Delete(o.refs, 0, n)
	}
	return n
}

func (p *paged) truncated(layer int) error { return p.unreserve(layer) }

func (p *paged) acquire(int, int32) error { return nil }

func (p *paged) prefetch(int, int32) {}

func (p *paged) release(int) error { return nil }

func (p *paged) share(fork layerStore) error {
	f := fork.(*paged)
	for i := range p.pages {
		f.pages[i] = p.pages[i].fork()
	}
	return nil
}

func (p *paged) bytes() (n int64) {
	for i := range p.pages {
		n += p.pages[i].bytes()
	}
	return n
}

func (p *paged) free() {
	for i := range p.pages {
		p.pages[i].free()
	}
}

// detachedPages are detached pages in host memory.
type detachedPages struct {
	of    *paged
	layer int
	lists [][]attention.Page // [KVHeads]
	owned []ownedPages
}

func (p *paged) newDetached(layer int) *detachedPages {
	n := p.s.m.heads(layer)
	d := &detachedPages{of: p, layer: layer, lists: make([][]attention.Page, n), owned: make([]ownedPages, n)}
	for g := range d.owned {
		d.owned[g] = ownedPages{m: p.s.m, of: p.s.m.layers[layer].classes[mainPages]}
	}
	return d
}

func (p *paged) detach(layer int, first []int, n int) (detached, error) {
	d := p.newDetached(layer)
	for g, a := range first {
		o := p.at(layer, g)
		d.lists[g], d.owned[g].refs = slices.Clone(p.s.lists.at(layer, g).main.pages[a:a+n]), slices.Clone(o.refs[a:a+n])
		o.refs = slices.Delete(o.refs, a, a+n)
	}
	return d, nil
}

func (p *paged) fresh(layer, n int) (detached, error) {
	d := p.newDetached(layer)
	for g := range d.owned {
		var one list
		if err := d.owned[g].reserve(&one, n*p.s.m.o.Layout.Tokens); err != nil {
			_ = d.free()
			return nil, err
		}
		d.lists[g] = one.pages
	}
	return d, nil
}

func (d *detachedPages) pages(kvHead int) []attention.Page { return d.lists[kvHead] }

func (d *detachedPages) attach(i, j int, first []int) {
	for g, at := range first {
		o, main := d.of.at(d.layer, g), &d.of.s.lists.at(d.layer, g).main
		o.refs = slices.Insert(o.refs, at, d.owned[g].refs[i:j]...)
		main.pages = slices.Insert(main.pages, at, d.lists[g][i:j]...)
	}
}

func (d *detachedPages) bytes() (n int64) {
	for g := range d.owned {
		n += d.owned[g].bytes()
	}
	return n
}

func (d *detachedPages) free() error {
	for g := range d.owned {
		d.owned[g].free()
	}
	return nil
}
