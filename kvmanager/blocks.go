package kvmanager

import (
	"terrace/attention"
	"terrace/kvmanager/slab"
	"terrace/offload"
)

// block is one group of tokens of one layer of one or more sequences: the pages of all KV heads, a record of the backing store.
type block struct {
	status   status
	data     []byte // the pages, one KV head after another; nil = below
	frame    slab.Ref
	pos      []int32 // [KVHeads][Tokens] positions, always in memory
	refs     int     // sequences that hold it; with more than one it is never written (invariant 3)
	writable int     // sequences that have a page in it with room left: it stays in memory
	pins     int     // passes that read it, or for which it was fetched
	staying  int     // sequences of whose part that is to stay in memory as long as there is room it is one
	yielding bool    // it leaves memory once it is stored, whoever has it to stay: room was short
	home     *home   // where they are stored; nil = nowhere
	layer    int32
	group    int32
	move     *transfer // that it is on its way by; nil = it does not move
}

// home is a number under which blocks are stored. A fork gives parent and child new ones, so that no two live blocks ever
// have the same key.
type home struct {
	seq     uint64
	records int
	current bool // a sequence stores its new blocks here
}

// transfer is a read or write of blocks under way; their frames stay until it is done.
type transfer struct {
	t      *offload.Ticket
	blocks []*block
	write  bool
	swap   *Sequence // whose tokens come or go as a whole (Deactivate, Bring); nil = those of no swap
}

// key names a block's record.
func (b *block) key() offload.Key {
	return offload.Key{Seq: b.home.seq, Layer: b.layer, Group: b.group}
}

func (b *block) record(m *Manager) offload.Record {
	n := m.layers[b.layer].recordBytes()
	return offload.Record{Key: b.key(), Data: b.data[:n:n]}
}

// page is the part of a block of one KV head.
func (b *block) page(m *Manager, kvHead int) []byte {
	if !b.inMemory() {
		return nil
	}
	n := m.main(int(b.layer)).PageBytes()
	return b.data[kvHead*n : (kvHead+1)*n : (kvHead+1)*n]
}

// view is the page of one KV head with n tokens in it.
func (b *block) view(m *Manager, kvHead, n int) attention.Page {
	t := m.o.Layout.Tokens
	return attention.Page{Data: b.page(m, kvHead), Pos: b.pos[kvHead*t : (kvHead+1)*t : (kvHead+1)*t], N: n, Version: m.stamp()}
}
