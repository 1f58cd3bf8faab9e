package kvmanager

import (
	"fmt"

	"terrace/attention"
	"terrace/internal/cacheshape"
	"terrace/offload"
)

// Blocks is a sequence's KV on tiers, block by block: what a cache of single tokens (tokencache) reads. A block is a page's
// tokens of one layer, all KV heads: its bytes are one page a head, one after another, and it is one record of the tier.
type Blocks struct{ t *tiered }

// Blocks returns the sequence's blocks; ErrUnsupported without a backing store, or where the cache is quantized.
func (s *Sequence) Blocks() (Blocks, error) {
	t, ok := s.store.(*tiered)
	if !ok || !s.enc.movesTokens() {
		return Blocks{}, fmt.Errorf("kvmanager: single tokens of %v: %w", s.m.o.Layout, ErrUnsupported)
	}
	return Blocks{t}, nil
}

// Manager is the sequence's.
func (b Blocks) Manager() *Manager { return b.t.s.m }

// Shape is what each layer keeps.
func (b Blocks) Shape() cacheshape.Model { return b.t.s.m.o.Layers }

// Count is the number of a layer's blocks.
func (b Blocks) Count(layer int) int { return len(b.t.layers[layer].blocks) }

// Complete reports whether nothing will be appended to block i of a layer any more.
func (b Blocks) Complete(layer, i int) bool { return b.t.layers[layer].blocks[i].writable == 0 }

// Resident is the bytes of block i of a layer, nil where they are not in memory or still on their way.
func (b Blocks) Resident(layer, i int) []byte {
	x := b.t.layers[layer].blocks[i]
	if x.reading() {
		return nil
	}
	return x.data
}

// Pin keeps a block in memory.
type Pin struct{ b *block }

// Pin pins block i of a layer, which is resident.
func (b Blocks) Pin(layer, i int) Pin {
	x := b.t.layers[layer].blocks[i]
	x.pins++
	return Pin{x}
}

// Unpin ends a pin.
func (p Pin) Unpin() { p.b.pins-- }

// PositionList is as Sequence.PositionList.
func (b Blocks) PositionList(layer, kvHead int) []int32 { return b.t.s.PositionList(layer, kvHead) }

// Page is page i of a layer and KV head: positions and their number; Data is nil where the page is not shown.
func (b Blocks) Page(layer, kvHead, i int) attention.Page {
	return b.t.main(layer, kvHead).pages[i]
}

// Record names block i of a layer on the tier, with a buffer for its bytes or a part of them.
func (b Blocks) Record(layer, i int, buffer []byte) offload.Record {
	return offload.Record{Key: b.t.layers[layer].blocks[i].key(), Data: buffer}
}

// Read begins to read records.
func (b Blocks) Read(recs []offload.Record) *offload.Ticket {
	return b.t.k.queue.Read(offload.Prefetch, recs)
}

// Gathers reports whether the tier hands out single tokens.
func (b Blocks) Gathers() bool { return b.t.k.queue.Gathers() }

// Gatherable reports whether single tokens of block i of a layer can be read now: it is stored, under Home.
func (b Blocks) Gatherable(layer, i int) bool {
	x := b.t.layers[layer].blocks[i]
	return x.home == b.t.home && !x.moving()
}

// Reordered reports whether blocks of a layer came and went in the middle: then the order of its tokens is not that of their records.
func (b Blocks) Reordered(layer int) bool { return b.t.layers[layer].reordered }

// Stored is the number under which the backing store has a token of a layer (group·Tokens + place), given by index; every block but
// the last is full.
func (b Blocks) Stored(layer int, index int32) int32 {
	lb, t := &b.t.layers[layer], int32(b.t.k.tokens())
	if !lb.reordered {
		return index
	}
	return lb.blocks[index/t].group*t + index%t
}

// Gather begins to read single tokens of a layer, by rising number (Stored), one after another into ⌈n/Tokens⌉ records. Their blocks
// are Gatherable.
func (b Blocks) Gather(layer int, tokens []int32, dst []byte) *offload.Ticket {
	return b.t.k.queue.Gather(offload.Prefetch, b.t.home.seq, layer, tokens, dst)
}

// CountTokens counts tokens, a layer and KV head, that a pass asked for, and of them those that were not in memory.
func (b Blocks) CountTokens(asked, fetched int) {
	b.t.s.m.asked += int64(asked)
	b.t.s.m.fetched += int64(fetched)
}

// InMemory reports whether a token of a layer and KV head, by its index, is in host memory now, read or on its way from there; without
// a backing store all are.
func (s *Sequence) InMemory(layer, kvHead, index int) bool {
	t, ok := s.store.(*tiered)
	if !ok || index >= s.MainTokens(layer, kvHead) {
		return true
	}
	b := t.layers[layer].blocks[index/s.m.main(layer).Tokens]
	return b.data != nil && !b.reading()
}
