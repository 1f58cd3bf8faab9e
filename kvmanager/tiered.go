package kvmanager

import (
	"errors"
	"fmt"
	"slices"

	"terrace/attention"
)

// tiered is a layer store whose pages lie in blocks on a backing store; those that a pass reads, and as many others as there is
// room for, are in host memory.
type tiered struct {
	s      *Sequence
	k      *backing
	layers []layerBlocks // [Layers]
	home   *home         // where new blocks are stored
	quota  []int         // [Layers] blocks that stay in memory, set by Plan
}

// layerBlocks are the blocks of one layer, in token order, and what a pass holds of them.
type layerBlocks struct {
	blocks     []*block
	writable   []*block // this sequence may write to them; one is named once for every head that it has room of
	held       []*block // pinned for the pass, or for the next
	staying    []*block // they are to stay in memory as long as there is room
	inactive   []*block // out of the list
	from       int      // first block that the pass holds
	reordered  bool     // blocks came and went in the middle: their numbers are not their places
	prefetched bool     // held for the next pass or layer only: given up where room is short
}

func newTiered(s *Sequence, k *backing) *tiered {
	n := len(s.m.layers)
	t := &tiered{s: s, k: k, layers: make([]layerBlocks, n), quota: make([]int, n), home: k.newHome()}
	k.sequences = append(k.sequences, t)
	return t
}

// main is a layer and head's list.
func (t *tiered) main(layer, kvHead int) *list { return &t.s.lists.at(layer, kvHead).main }

func (t *tiered) reserve(layer int, more []int) error {
	k, lb := t.k, &t.layers[layer]
	var own []*block // in memory until all are there: making room for one must not take another
	keep := func(b *block) {
		b.pins++
		own = append(own, b)
	}
	defer func() {
		for _, b := range own {
			b.pins--
		}
	}()
	most := 0
	for g, n := range more {
		p := t.main(layer, g)
		most = max(most, p.pagesFor(n, t.k.tokens()))
		if last := len(p.pages) - 1; last >= 0 && p.pages[last].N < t.k.tokens() && n > 0 {
			if err := t.ownBlock(layer, last); err != nil {
				return err
			}
			keep(lb.blocks[last])
		}
	}
	for len(lb.blocks) < most {
		b, err := k.newBlock(layer, lb.group())
		if err != nil {
			return err
		}
		lb.blocks = append(lb.blocks, b)
		keep(b)
	}
	for g, n := range more {
		for p := t.main(layer, g); len(p.pages) < p.pagesFor(n, t.k.tokens()); {
			at := len(p.pages) // another head's tokens may have filled the block already
			if err := t.ownBlock(layer, at); err != nil {
				return err
			}
			keep(lb.blocks[at])
			p.pages = append(p.pages, lb.blocks[at].view(k.m, g, 0))
		}
	}
	t.mark(layer)
	return nil
}

// pagesFor is the number of pages of so many tokens that a list needs for n more.
func (p *list) pagesFor(n, tokens int) int { return (p.tokens + n + tokens - 1) / tokens }

// group is a number that no block of the layer has, in the list or inactive.
func (lb *layerBlocks) group() int {
	if !lb.reordered {
		return len(lb.blocks)
	}
	n := int32(-1)
	for _, b := range lb.blocks {
		n = max(n, b.group)
	}
	for _, b := range lb.inactive {
		n = max(n, b.group)
	}
	return int(n) + 1
}

// ownBlock makes block i of a layer writable: in memory, not shared, not under way (invariant 3).
func (t *tiered) ownBlock(layer, i int) error {
	k, lb := t.k, &t.layers[layer]
	old := lb.blocks[i]
	if err := k.load(old); err != nil {
		return err
	}
	if old.refs == 1 {
		return nil
	}
	old.pins++
	b, err := k.newBlock(layer, int(old.group))
	old.pins--
	if err != nil {
		return err
	}
	copy(b.data, old.data)
	copy(b.pos, old.pos)
	lb.blocks[i] = b
	for j, x := range lb.held {
		if x == old {
			lb.held[j] = b
			old.pins--
			b.pins++
		}
	}
	for j, x := range lb.staying {
		if x == old {
			lb.staying[j] = b
			old.staying--
			b.staying++
		}
	}
	for j, x := range lb.writable {
		if x == old {
			lb.writable[j] = b
			old.writable--
			b.writable++
		}
	}
	for g := range k.m.heads(layer) {
		if p := t.main(layer, g).pages; i < len(p) {
			p[i] = b.view(k.m, g, p[i].N)
		}
	}
	return k.release(old)
}

// mark notes which blocks of a layer have room for this sequence's next tokens: they stay in memory.
func (t *tiered) mark(layer int) {
	lb := &t.layers[layer]
	for _, b := range lb.writable {
		b.writable--
	}
	clear(lb.writable)
	lb.writable = lb.writable[:0]
	for g := range t.s.m.heads(layer) {
		p := t.main(layer, g).pages
		for i := len(p) - 1; i >= 0 && p[i].N < t.k.tokens(); i-- {
			lb.blocks[i].writable++
			lb.writable = append(lb.writable, lb.blocks[i])
		}
	}
}

// withRoom is the number of blocks that the sequence may write to.
func (lb *layerBlocks) withRoom() int {
	n := 0
	for i, b := range lb.writable {
		if !slices.Contains(lb.writable[:i], b) {
			n++
		}
	}
	return n
}

// unreserve gives back the pages that hold no token, and the blocks that no head reaches any more.
func (t *tiered) unreserve(layer int) error {
	lb, most := &t.layers[layer], 0
	for g := range t.s.m.heads(layer) {
		p := t.main(layer, g)
		n := len(p.pages)
		for n > 0 && p.pages[n-1].N == 0 {
			n--
		}
		p.pages = p.pages[:n]
		most = max(most, n)
	}
	t.mark(layer)
	var err error
	for i := most; i < len(lb.blocks); i++ {
		b := lb.blocks[i]
		lb.forget(b)
		err = errors.Join(err, t.k.release(b))
		lb.blocks[i] = nil
	}
	lb.blocks = lb.blocks[:most]
	return err
}

// forget takes a block out of those that the sequence holds and has to stay.
func (lb *layerBlocks) forget(b *block) {
	if i := slices.Index(lb.staying, b); i >= 0 {
		b.staying--
		lb.staying = slices.Delete(lb.staying, i, i+1)
	}
	if i := slices.Index(lb.held, b); i >= 0 {
		b.pins--
		lb.held[i] = lb.held[len(lb.held)-1]
		lb.held = lb.held[:len(lb.held)-1]
	}
}

func (t *tiered) appended(layer, first int) {
	t.layers[layer].touched(first)
	t.mark(layer)
}

// touched marks blocks from one on as newer than what is stored. Those that are not in memory, or on their way, were not written
// to: reserve and edit bring what is.
func (lb *layerBlocks) touched(first int) {
	for _, b := range lb.blocks[min(first, len(lb.blocks)):] {
		if b.inMemory() && !b.moving() {
			b.turn(edited)
		}
	}
}

func (t *tiered) edit(layer, first int) error {
	if err := t.gather(layer, 0); err != nil {
		return err
	}
	for i := first; i < len(t.layers[layer].blocks); i++ {
		if err := t.ownBlock(layer, i); err != nil {
			return err
		}
	}
	t.show(layer, 0, true)
	return nil
}

func (t *tiered) own(layer, kvHead, from, to int) error { // edit has made the blocks its own
	p, n := t.main(layer, kvHead), t.k.tokens()
	for i := from / n; i*n < to; i++ {
		p.pages[i].Version = t.s.m.stamp()
	}
	return nil
}

func (t *tiered) edited(layer, first int) error {
	t.layers[layer].touched(first)
	return t.unreserve(layer)
}

func (t *tiered) extra(int, int, int, int) int64 { return 0 } // edit has taken it

// drop leaves blocks that move for another time, so it never waits. Their places on the backing store are given back with the
// sequence.
func (t *tiered) drop(layer, n, unit int) int {
	lb := &t.layers[layer]
	if i := slices.IndexFunc(lb.blocks[:n], (*block).moving); i >= 0 {
		n = i / unit * unit
	}
	for _, b := range lb.blocks[:n] {
		lb.forget(b)
		t.s.m.note(t.k.release(b))
	}
	if n > 0 {
		lb.blocks, lb.reordered, lb.from = slices.Delete(lb.blocks, 0, n), true, max(lb.from-n, 0)
	}
	return n
}

// truncated: the last tokens' block comes back to memory, more will be written there.
func (t *tiered) truncated(layer int) error {
	if err := t.unreserve(layer); err != nil {
		return err
	}
	for _, b := range t.layers[layer].writable {
		if err := t.k.load(b); err != nil {
			return err
		}
	}
	return t.release(layer)
}

func (t *tiered) bytes() (n int64) {
	for i := range t.layers {
		n += int64(len(t.layers[i].blocks)) * t.s.m.layers[i].blockBytes()
	}
	return n
}

// share gives a fork the sequence's blocks. Both store what they write from now on under numbers of their own, so that no two
// blocks ever have the same key.
func (t *tiered) share(fork layerStore) error {
	f := fork.(*tiered)
	for layer := range t.layers {
		lb := &t.layers[layer]
		f.layers[layer].blocks, f.layers[layer].reordered = slices.Clone(lb.blocks), lb.reordered
		for _, b := range lb.blocks {
			if b.refs++; b.home == nil { // its number there, until it is stored
				b.home = t.home
				t.home.records++
			}
		}
		f.show(layer, 0, false)
		f.mark(layer)
		f.quota[layer] = t.quota[layer]
		f.layers[layer].keep(lb.from, f.quota[layer])
	}
	old := t.home
	t.home = t.k.newHome()
	old.current = false
	return t.k.dropHome(old)
}

func (t *tiered) free() {
	k := t.k
	for layer := range t.layers {
		lb := &t.layers[layer]
		for _, b := range lb.held {
			b.pins--
		}
		for _, b := range lb.staying {
			b.staying--
		}
		for _, b := range lb.writable {
			b.writable--
		}
		for _, b := range lb.blocks {
			_ = k.release(b) // a write of it that failed concerns nobody any more
		}
		k.sweep(lb.blocks)
		*lb = layerBlocks{}
	}
	t.home.current = false
	k.m.note(k.dropHome(t.home))
	i := slices.Index(k.sequences, t)
	k.sequences = slices.Delete(k.sequences, i, i+1)
}

// detachedBlocks are detached pages on a backing store.
type detachedBlocks struct {
	of     *tiered
	layer  int
	blocks []*block
	lists  [][]attention.Page // [KVHeads] of fresh ones
}

// detach: nobody reads the blocks, so they leave memory once they are stored.
func (t *tiered) detach(layer int, first []int, n int) (detached, error) {
	lb, a := &t.layers[layer], first[0]
	for g, at := range first {
		if at != a {
			return nil, fmt.Errorf("kvmanager: pages from %d on of layer %d head %d, from %d on of head 0: %w", at, layer, g, a, ErrPlan)
		}
	}
	d := &detachedBlocks{of: t, layer: layer, blocks: slices.Clone(lb.blocks[a : a+n])}
	lb.blocks, lb.reordered = slices.Delete(lb.blocks, a, a+n), true
	lb.inactive = append(lb.inactive, d.blocks...)
	var out []*block
	for _, b := range d.blocks {
		lb.forget(b)
		if b.status == unstored {
			out = append(out, b)
		}
	}
	err := t.k.store(t.home, out)
	swapping(t.s, out)
	t.k.sweep(d.blocks)
	return d, err
}

func (t *tiered) fresh(layer, n int) (detached, error) {
	d := &detachedBlocks{of: t, layer: layer, lists: make([][]attention.Page, t.s.m.heads(layer))}
	group := t.layers[layer].group()
	for i := range n {
		b, err := t.k.newBlock(layer, group+i)
		if err != nil {
			return nil, errors.Join(err, d.free())
		}
		d.blocks = append(d.blocks, b)
		for g := range d.lists {
			d.lists[g] = append(d.lists[g], b.view(t.s.m, g, 0))
		}
	}
	return d, nil
}

func (d *detachedBlocks) pages(kvHead int) []attention.Page { return d.lists[kvHead] }

// attach: the blocks are seen once the layer is acquired.
func (d *detachedBlocks) attach(i, j int, first []int) {
	t, blocks := d.of, d.blocks[i:j]
	lb := &t.layers[d.layer]
	lb.inactive = slices.DeleteFunc(lb.inactive, func(b *block) bool { return slices.Contains(blocks, b) })
	lb.blocks, lb.reordered = slices.Insert(lb.blocks, first[0], blocks...), true
	for g, at := range first {
		p := t.main(d.layer, g)
		for n, b := range blocks {
			v := b.view(t.s.m, g, t.k.tokens())
			v.Data = nil
			p.pages = slices.Insert(p.pages, at+n, v)
		}
	}
}

func (d *detachedBlocks) bytes() (n int64) {
	for _, b := range d.blocks {
		if b.inMemory() {
			n += d.of.k.class(b).bytes
		}
	}
	return n
}

func (d *detachedBlocks) free() error {
	lb := &d.of.layers[d.layer]
	lb.inactive = slices.DeleteFunc(lb.inactive, func(b *block) bool { return slices.Contains(d.blocks, b) })
	var err error
	for _, b := range d.blocks {
		err = errors.Join(err, d.of.k.release(b))
	}
	return err
}
