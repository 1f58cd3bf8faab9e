package kvmanager

import (
	"slices"

	"terrace/kvmanager/slab"
)

// errorer is what check reports to.
type errorer interface {
	Helper()
	Errorf(string, ...any)
}

// check holds all accounts of a cache that is between calls against its open sequences, which are all of them, as bbolt's Check does those
// of a file:
//
//  1. Manager.Check: pages referenced and bytes charged are the bytes in use, frames out less frames back are those referenced.
//  2. budget: what is in use is not above it, and the peak not below what is in use.
//  3. lists: positions ascend, every page but the last is full, pages count the list's tokens, no page lacks its positions.
//  4. references: each page or block is referenced as often as sequences (and what is inactive) hold it, and by nobody else.
//  5. frames: each block in memory has one of its own, and there are no others.
//  6. a block's counts (pins, writers, those that have it to stay) are those of the sequences that say so.
//  7. status: a block is stored, or in memory, or both; one on its way is in one transfer that is in one list; one that is newer than the
//     store is in memory; what nobody needs has left.
//  8. homes count the blocks that are stored under them, and there is none without a sequence or a block.
//
// Pins that others hold (Blocks.Pin) are in pinned.
func check(t errorer, m *Manager, pinned map[*block]int, seqs ...*Sequence) {
	t.Helper()
	if err := m.Check(); err != nil {
		t.Errorf("%v", err)
	}
	if m.o.BudgetBytes > 0 && m.inUse > m.o.BudgetBytes || m.peak < m.inUse || m.sequences != len(seqs) {
		t.Errorf("%d bytes in use of %d, at most %d; %d sequences, want %d", m.inUse, m.o.BudgetBytes, m.peak, m.sequences, len(seqs))
	}
	for _, s := range seqs {
		s.checkLists(t)
	}
	if m.backing == nil {
		checkPaged(t, m, seqs)
		return
	}
	m.backing.check(t, pinned, seqs)
}

// checkLists is rule 3.
func (s *Sequence) checkLists(t errorer) {
	t.Helper()
	for layer := range s.m.layers {
		for g := range s.m.heads(layer) {
			h, tokens := s.lists.at(layer, g), 0
			for i, page := range h.main.pages {
				if i+1 < len(h.main.pages) && page.N != s.m.o.Layout.Tokens {
					t.Errorf("layer %d head %d: page %d of %d has %d tokens", layer, g, i, len(h.main.pages), page.N)
				}
				if !slices.Equal(page.Pos[:page.N], h.pos[tokens:tokens+page.N]) {
					t.Errorf("layer %d head %d, page %d: positions %v, want %v", layer, g, i, page.Pos[:page.N], h.pos[tokens:tokens+page.N])
				}
				tokens += page.N
			}
			if tokens != h.main.tokens || len(h.pos) < tokens {
				t.Errorf("layer %d head %d: pages of %d tokens, %d counted, %d positions", layer, g, tokens, h.main.tokens, len(h.pos))
			}
			for i := 1; i < len(h.pos); i++ {
				if h.pos[i] <= h.pos[i-1] {
					t.Errorf("layer %d head %d: position %d behind %d", layer, g, h.pos[i], h.pos[i-1])
				}
			}
		}
	}
}

// checkPaged is rule 4 of pages in host memory: a page is shared exactly if two lists have it, and all together are those referenced.
func checkPaged(t errorer, m *Manager, seqs []*Sequence) {
	t.Helper()
	held := map[*pageClass]map[slab.Ref]int{}
	hold := func(o *ownedPages) {
		if held[o.of] == nil {
			held[o.of] = map[slab.Ref]int{}
		}
		for _, r := range o.refs {
			held[o.of][r]++
		}
	}
	for _, s := range seqs {
		p := s.store.(*paged)
		for i := range p.pages {
			hold(&p.pages[i])
			if n := len(s.lists.all[i].main.pages); n != len(p.pages[i].refs) {
				t.Errorf("list %d: %d pages, %d references", i, n, len(p.pages[i].refs))
			}
		}
		if q, ok := s.enc.(*quantized); ok {
			for i := range q.windows {
				hold(&q.windows[i].owned)
			}
		}
		for _, d := range s.swaps.inactive {
			for g := range d.detached.(*detachedPages).owned {
				hold(&d.detached.(*detachedPages).owned[g])
			}
		}
	}
	for _, of := range m.classes {
		if n := of.pages.Referenced(); n != len(held[of]) {
			t.Errorf("%d pages of %d bytes are referenced, sequences hold %d", n, of.bytes, len(held[of]))
		}
		for r, n := range held[of] {
			if of.pages.Shared(r) != (n > 1) {
				t.Errorf("page %v is held %d times, shared: %v", r, n, of.pages.Shared(r))
			}
		}
	}
}

// counts are what sequences say of a block.
type counts struct{ refs, pins, writable, staying int }

// check is rules 4 to 8 of blocks on a backing store.
func (k *backing) check(t errorer, pinned map[*block]int, seqs []*Sequence) {
	t.Helper()
	if len(k.sequences) != len(seqs) {
		t.Errorf("%d sequences on the backing store, %d open", len(k.sequences), len(seqs))
	}
	all, current := map[*block]*counts{}, map[*home]bool{}
	of := func(b *block) *counts {
		if all[b] == nil {
			all[b] = &counts{}
		}
		return all[b]
	}
	for _, s := range seqs {
		x := s.store.(*tiered)
		current[x.home] = true
		for layer := range x.layers {
			lb := &x.layers[layer]
			for _, b := range slices.Concat(lb.blocks, lb.inactive) {
				of(b).refs++
			}
			for _, b := range lb.held {
				of(b).pins++
			}
			for _, b := range lb.staying {
				of(b).staying++
			}
			for _, b := range lb.writable {
				of(b).writable++
			}
		}
	}
	for b, n := range pinned {
		of(b).pins += n
	}
	frames, records := map[*pageClass]int{}, map[*home]int{}
	for b, n := range all {
		b.check(t, *n)
		if b.data != nil {
			frames[k.class(b)]++
		}
		if b.home != nil {
			records[b.home]++
		}
		if b.move != nil && slices.Contains(k.reads, b.move) == slices.Contains(k.writes, b.move) {
			t.Errorf("a block's transfer is in no list, or in both")
		}
	}
	windows := 0
	for _, s := range seqs {
		if q, ok := s.enc.(*quantized); ok {
			for i := range q.windows {
				windows += len(q.windows[i].owned.refs)
			}
		}
	}
	for _, of := range k.m.classes {
		if n := of.pages.Referenced(); of.tokens == 0 && n != frames[of] {
			t.Errorf("%d frames of %d bytes are out, blocks have %d", n, of.bytes, frames[of])
		}
	}
	for h, n := range records {
		if h.records != n || h.current != current[h] {
			t.Errorf("home %d counts %d records, blocks have %d; current: %v", h.seq, h.records, n, h.current)
		}
	}
	for _, list := range [][]*transfer{k.reads, k.writes} {
		for _, tr := range list {
			for _, b := range tr.blocks {
				if b.move != tr || tr.write != slices.Contains(k.writes, tr) {
					t.Errorf("a transfer under way has a block that does not know of it")
				}
			}
		}
	}
}

// check is rules 6 and 7.
func (b *block) check(t errorer, want counts) {
	t.Helper()
	if got := (counts{b.refs, b.pins, b.writable, b.staying}); got != want {
		t.Errorf("block %d of layer %d: %+v, sequences say %+v", b.group, b.layer, got, want)
	}
	switch {
	case b.inMemory() != (b.data != nil) || b.moving() != (b.move != nil) || b.moving() && b.move.write != (b.status == storing):
		t.Errorf("block %d of layer %d is %v: bytes %v, on its way %v", b.group, b.layer, b.status, b.data != nil, b.move != nil)
	case b.home == nil && b.status != unstored:
		t.Errorf("block %d of layer %d is %v and was never stored", b.group, b.layer, b.status)
	case b.writable > 0 && !b.inMemory():
		t.Errorf("block %d of layer %d has room for tokens and is not in memory", b.group, b.layer)
	}
}
