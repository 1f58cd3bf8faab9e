package kvmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"terrace/attention"
	"terrace/kvmanager/slab"
	"terrace/offload"
)

// Lower is the tier below host memory: records of one group of tokens, one layer and all KV heads, moved in the background.
// Only one transfer of a record is under way at a time; the bytes belong to the tier until its transfer is done.
type Lower interface {
	// Read fills the records' bytes with what was written under their keys; urgent goes before what is not.
	Read(urgent bool, recs []offload.Record) Transfer
	// Write stores the records' bytes under their keys, over what was there.
	Write(recs []offload.Record) Transfer
	// Drop forgets every record of a sequence number.
	Drop(seq uint64) error
}

// Gatherer is a Lower that hands out single tokens, so that nothing else of their groups is moved.
type Gatherer interface {
	Lower
	// Gathers reports whether it can, for this cache.
	Gathers() bool
	// Gather fills dst with tokens of a layer, given by rising index in what is stored under a number: one after another in
	// ⌈n/16⌉ records, as if they were the only ones.
	Gather(seq uint64, layer int, tokens []int32, dst []byte) Transfer
}

// Transfer is a read or write under way.
type Transfer interface {
	// Wait returns when the transfer is done, or with the context's error; then it is still under way.
	Wait(ctx context.Context) error
	// Done reports whether Wait would return at once.
	Done() bool
}

// block is one group of tokens of one layer of one or more sequences: the pages of all KV heads, a record of the lower tier.
type block struct {
	data  []byte // the pages, one KV head after another; nil = on the lower tier only
	frame slab.Ref
	pos   []int32 // [KVHeads][Tokens] positions, always in memory
	refs  int     // sequences that hold it; with more than one it is never written (invariant 3)
	open  int     // sequences that have a page in it with room left: it stays in memory
	pins  int     // passes that read it, or for which it was fetched
	stays bool    // it belongs to the part that is to stay in memory as long as there is room
	dirty bool    // the lower tier does not have these bytes
	home  *home   // where they are stored; nil = nowhere
	layer int32
	group int32
	move  *transfer // under way
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
	t      Transfer
	blocks []*block
	write  bool
}

// tierStall is how long a transfer may take before the request fails.
const tierStall = 30 * time.Second

// ErrStalled is returned for a transfer that took longer than its deadline.
var ErrStalled = errors.New("the storage tier does not answer")

// await waits for a transfer and takes its blocks back. Blocks of a failed read have no bytes, those of a failed write are
// still to be stored.
func (m *Manager) await(t *transfer) error {
	err := m.awaitRead(t.t, len(t.blocks))
	if errors.Is(err, ErrStalled) {
		return err
	}
	for _, b := range t.blocks {
		b.move = nil
		switch {
		case t.write && err != nil:
			b.dirty = true
		case !t.write && err != nil:
			m.vacate(b)
		}
	}
	if t.write {
		if i := slices.Index(m.writes, t); i >= 0 {
			m.writes = slices.Delete(m.writes, i, i+1)
		}
		m.sweep(t.blocks)
	}
	return err
}

// awaitRead waits for a transfer of some records within the deadline.
func (m *Manager) awaitRead(t Transfer, records int) error {
	if t.Done() {
		return t.Wait(context.Background())
	}
	ctx, cancel := context.WithTimeout(context.Background(), tierStall)
	defer cancel()
	err := t.Wait(ctx)
	if ctx.Err() != nil && !t.Done() {
		return fmt.Errorf("kvmanager: a transfer of %d records: %w after %v", records, ErrStalled, tierStall)
	}
	return err
}

// sweep frees the frames of blocks that only waited to be stored.
func (m *Manager) sweep(blocks []*block) {
	for _, b := range blocks {
		if b.leaving() {
			m.vacate(b)
		}
	}
}

// leaving reports whether a block has no reason to stay in memory.
func (b *block) leaving() bool {
	return b.data != nil && !b.stays && b.idle() && !b.dirty
}

// idle reports whether nobody reads, writes or moves a block.
func (b *block) idle() bool { return b.open == 0 && b.pins == 0 && b.move == nil }

// vacate gives a block's frame back.
func (m *Manager) vacate(b *block) {
	if b.data == nil {
		return
	}
	b.data = nil
	m.drop(settled, b.frame)
}

// newBlock returns an empty block in memory with one reference.
func (m *Manager) newBlock(layer, group int) (*block, error) {
	b := &block{refs: 1, dirty: true, layer: int32(layer), group: int32(group), pos: make([]int32, m.o.KVHeads*m.o.Layout.Tokens)}
	return b, m.occupy(b)
}

// occupy gives a block a frame of undefined bytes.
func (m *Manager) occupy(b *block) error {
	p, err := m.take(settled)
	if err != nil {
		return err
	}
	b.frame, b.data = p, m.slabs[settled].Data(p)
	return nil
}

// release takes one reference away.
func (m *Manager) releaseBlock(b *block) error {
	if b.refs--; b.refs > 0 {
		return nil
	}
	var err error
	if b.move != nil {
		err = m.await(b.move)
	}
	if b.move == nil { // else the tier may still write there: the frame is lost rather than reused
		m.vacate(b)
	}
	return errors.Join(err, m.leaveHome(b))
}

// leaveHome forgets where a block was stored; the last one to leave an old home has its records dropped.
func (m *Manager) leaveHome(b *block) error {
	h := b.home
	if h == nil {
		return nil
	}
	b.home = nil
	h.records--
	return m.dropHome(h)
}

func (m *Manager) dropHome(h *home) error {
	if h.records > 0 || h.current {
		return nil
	}
	return m.lower.Drop(h.seq)
}

func (m *Manager) newHome() *home {
	m.homes++
	return &home{seq: m.homes, current: true}
}

// store begins to write dirty blocks under a home.
func (m *Manager) store(h *home, blocks []*block) error {
	if len(blocks) == 0 {
		return nil
	}
	recs := make([]offload.Record, len(blocks))
	for i, b := range blocks {
		if b.home != h {
			if err := m.leaveHome(b); err != nil {
				return err
			}
			b.home = h
			h.records++
		}
		b.dirty = false
		recs[i] = b.record(m)
	}
	t := &transfer{t: m.lower.Write(recs), blocks: slices.Clone(blocks), write: true}
	for _, b := range blocks {
		b.move = t
	}
	m.writes = append(m.writes, t)
	return nil
}

func (b *block) record(m *Manager) offload.Record {
	n := m.o.KVHeads * m.o.Layout.PageBytes()
	return offload.Record{Key: offload.Key{Seq: b.home.seq, Layer: b.layer, Group: b.group}, Data: b.data[:n:n]}
}

// fetch begins to read blocks that are not in memory; they have frames already.
func (m *Manager) fetch(urgent bool, blocks []*block) {
	if len(blocks) == 0 {
		return
	}
	recs := make([]offload.Record, len(blocks))
	for i, b := range blocks {
		recs[i] = b.record(m)
	}
	t := &transfer{t: m.lower.Read(urgent, recs), blocks: slices.Clone(blocks)}
	for _, b := range blocks {
		b.move = t
	}
}

// page is the part of a block of one KV head.
func (b *block) page(m *Manager, kvHead int) []byte {
	if b.data == nil {
		return nil
	}
	n := m.o.Layout.PageBytes()
	return b.data[kvHead*n : (kvHead+1)*n : (kvHead+1)*n]
}

// view is the page of one KV head with n tokens in it.
func (b *block) view(m *Manager, kvHead, n int) attention.Page {
	return attention.Page{Data: b.page(m, kvHead), Pos: b.positions(m, kvHead), N: n, Version: m.stamp()}
}

func (b *block) positions(m *Manager, kvHead int) []int32 {
	t := m.o.Layout.Tokens
	return b.pos[kvHead*t : (kvHead+1)*t : (kvHead+1)*t]
}
