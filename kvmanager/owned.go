package kvmanager

import (
	"slices"

	"terrace/attention"
	"terrace/kvmanager/slab"
)

// ownedPages is references to the pages of one list: page i of the list is refs[i].
type ownedPages struct {
	m    *Manager
	of   *pageClass
	refs []slab.Ref
}

// page is what attention reads of page i, with n tokens in it.
func (o *ownedPages) page(r slab.Ref, n int) attention.Page {
	return attention.Page{Data: o.of.pages.Data(r), Pos: o.of.pages.Positions(r), N: n, Version: o.m.stamp()}
}

// reserve gives a list room for n more tokens, in pages that nobody else has.
func (o *ownedPages) reserve(p *list, n int) error {
	if n == 0 {
		return nil
	}
	t := o.of.tokens
	if last := len(p.pages) - 1; last >= 0 && p.pages[last].N < t && o.of.pages.Shared(o.refs[last]) {
		if err := o.own(p, last); err != nil { // invariant 3
			return err
		}
	}
	for len(p.pages)*t-p.tokens < n {
		r, err := o.m.take(o.of)
		if err != nil {
			return err
		}
		o.refs = append(o.refs, r)
		p.pages = append(p.pages, o.page(r, 0))
	}
	return nil
}

// unreserve gives back empty pages at the end.
func (o *ownedPages) unreserve(p *list) {
	n := len(p.pages)
	for ; n > 0 && p.pages[n-1].N == 0; n-- {
		o.m.drop(o.of, o.refs[n-1])
	}
	o.refs, p.pages = o.refs[:n], p.pages[:n]
}

// own replaces a shared page by a copy (invariant 3).
func (o *ownedPages) own(p *list, i int) error {
	r, err := o.m.take(o.of)
	if err != nil {
		return err
	}
	old := p.pages[i]
	p.pages[i] = o.page(r, old.N)
	copy(p.pages[i].Data, old.Data)
	copy(p.pages[i].Pos, old.Pos)
	o.m.drop(o.of, o.refs[i])
	o.refs[i] = r
	return nil
}

// ownRange makes the pages that hold the tokens first to end-1 writable and gives them new versions.
func (o *ownedPages) ownRange(p *list, first, end int) error {
	t := o.of.tokens
	for i := first / t; i*t < end; i++ {
		if o.shared(i) {
			if err := o.own(p, i); err != nil {
				return err
			}
		} else {
			p.pages[i].Version = o.m.stamp()
		}
	}
	return nil
}

// shared reports whether page i belongs to others as well.
func (o *ownedPages) shared(i int) bool { return o.of.pages.Shared(o.refs[i]) }

// bytes is what the pages hold, shared ones included.
func (o *ownedPages) bytes() int64 { return int64(len(o.refs)) * o.of.bytes }

// fork is references of another sequence's to the same pages.
func (o *ownedPages) fork() ownedPages {
	for _, r := range o.refs {
		o.of.pages.Ref(r)
	}
	return ownedPages{m: o.m, of: o.of, refs: slices.Clone(o.refs)}
}

// free gives every page back.
func (o *ownedPages) free() {
	for _, r := range o.refs {
		o.m.drop(o.of, r)
	}
	o.refs = nil
}
