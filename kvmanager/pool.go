package kvmanager

import (
	"fmt"
	"slices"

	"terrace/internal/kvpage"
	"terrace/offload"
)

// PoolOptions say what a pool keeps.
type PoolOptions struct {
	ByHead       bool  // each KV head's tokens are picked by themselves; otherwise all heads of a layer share one selection
	Pages        bool  // whole pages are kept rather than single tokens, which need keys that lie token by token
	Layers       []int // those it serves
	StagingBytes int64 // for what is on its way
}

// Pool keeps tokens (or pages) of a sequence's layers in host memory, so that a decode step that reads a selection of tokens
// finds most of them there: the rest is read from the lower tier group by group. Each layer (and KV head, ByHead) has a lane
// of its own, because what layers select differs: at a quarter of the KV, one lane a layer by recency of use misses 5 % of
// SmolLM2's picks at 8,000 tokens, whole tokens over all layers 14 %.
//
// A pool belongs to its sequence and is used by one goroutine; only Build may run on several, each with its own tile.
type Pool struct {
	s         *Sequence
	m         *Manager
	o         PoolOptions
	lanesOf   []int // [Layers] first lane, -1 = not served
	lanes     []lane
	heads     int // KV heads of a lane
	unit      int // tokens of a slot
	slotBytes int
	rowBytes  int // key and value of one token and KV head
	keyBytes  int // of it, the key
	pageBytes int
	valuesAt  int   // where values begin in a page
	mem       slabs // the lanes' chunks
	limit     int   // slots a lane may have
	step      uint32
	hot       func(position int32) bool // which tokens may be kept; nil = all
	stage     staging
	gather    gathering
	work      []poolWork // [Layers]
	out       poolViews
	stats     PoolStats
}

// PoolStats count what steps picked.
type PoolStats struct {
	Picked, Missed int64 // slots that selections named, and those that were not in host memory
	Groups         int64 // records read for them
	Bytes          int64 // in host memory: slots, staging, tables, views
}

// chunkSlots is how many slots a lane grows by.
const chunkSlots = 64

// lane is the pool of one layer (and KV head).
type lane struct {
	chunks []pageRef // of the pool's slabs
	bytes  [][]byte  // their memory
	at     []int32   // [units] slot, or -1
	owner  []int32   // [slots] unit, or -1
	stamp  []uint32  // [slots] step of the last use
	worth  []float32 // [slots] of keeping it
	free   []int32
	tail   int // blocks that were absorbed when they were complete

	scored  bool    // its last selection was made from scores: worth is measured by them
	misses  int     // slots that this step's selection wants beside those it found
	leaving []int32 // slots that give way, worth least first
	next    int     // of them
}

// slotIndexBytes is the memory that a lane keeps of a slot beside its bytes.
const slotIndexBytes = 16

// NewPool returns an empty pool; ErrBudget where not even its staging fits.
func (s *Sequence) NewPool(o PoolOptions) (*Pool, error) {
	m := s.m
	if m.lower == nil || m.quantised || (!o.Pages && !m.o.Layout.TokenMajor) {
		return nil, fmt.Errorf("kvmanager: a pool of %v: %w", m.o.Layout, ErrUnsupported)
	}
	p := &Pool{s: s, m: m, o: o, heads: m.o.KVHeads, unit: 1, lanesOf: make([]int, m.o.Layers), work: make([]poolWork, m.o.Layers)}
	per := 1
	if o.ByHead {
		p.heads, per = 1, m.o.KVHeads
	}
	l := m.o.Layout
	p.keyBytes, p.pageBytes, p.valuesAt = l.KTileBytes()/kvpage.Tile, l.PageBytes(), l.KBytes()
	p.rowBytes = p.keyBytes + l.VRowBytes()
	p.slotBytes = p.heads * p.rowBytes
	if o.Pages {
		p.unit = l.Tokens
		p.slotBytes = p.heads * l.PageBytes()
	}
	for i := range p.lanesOf {
		p.lanesOf[i] = -1
	}
	for _, layer := range o.Layers {
		p.lanesOf[layer] = len(p.lanes)
		p.lanes = append(p.lanes, make([]lane, per)...)
	}
	size := p.heads * l.PageBytes()
	p.mem.init(roundUp(chunkSlots*p.slotBytes, systemPageBytes), 0)
	n := p.initGathering(int(max(o.StagingBytes/int64(size), 4)), size)
	if err := p.charge(int64(n*size) + p.gather.bytes()); err != nil {
		p.gather.close()
		return nil, err
	}
	p.stage.init(offload.AlignedBytes(n*size), size)
	m.pools = append(m.pools, p)
	return p, nil
}

// charge counts memory of the pool.
func (p *Pool) charge(bytes int64) error {
	if err := p.m.Charge(bytes); err != nil {
		return err
	}
	p.stats.Bytes += bytes
	return nil
}

func (p *Pool) refund(bytes int64) {
	p.m.Refund(bytes)
	p.stats.Bytes -= bytes
}

// Serves reports whether a layer has lanes.
func (p *Pool) Serves(layer int) bool { return p != nil && p.lanesOf[layer] >= 0 }

// Stats are the counts so far.
func (p *Pool) Stats() PoolStats { return p.stats }

// FixedBytes is the memory that the pool holds beside its slots.
func (p *Pool) FixedBytes() int64 {
	n := p.stats.Bytes
	for i := range p.lanes {
		n -= int64(len(p.lanes[i].chunks)) * p.chunkBytes()
	}
	return n
}

// chunkBytes is the memory of a chunk of slots and what is noted of them.
func (p *Pool) chunkBytes() int64 { return int64(p.mem.pageBytes) + slotIndexBytes*chunkSlots }

// SlotBytes is the memory of a slot and what is noted of it, and Lanes how many lanes there are.
func (p *Pool) SlotBytes() int { return p.slotBytes + slotIndexBytes }

// Lanes is the number of lanes.
func (p *Pool) Lanes() int { return len(p.lanes) }

// Unit is the number of tokens of a slot.
func (p *Pool) Unit() int { return p.unit }

// SetLimit sets how many slots a lane may have; lanes with more give some back.
func (p *Pool) SetLimit(slots int) {
	p.limit = max(slots, 0)
	for i := range p.lanes {
		for len(p.lanes[i].chunks) > 0 && len(p.lanes[i].owner)-len(p.lanes[i].free) > p.limit {
			p.dropChunk(&p.lanes[i])
		}
	}
	p.mem.release()
}

// SetHot says which tokens may be kept, by position; nil = all that are read.
func (p *Pool) SetHot(hot func(position int32) bool) { p.hot = hot }

// lane returns the lanes of a layer.
func (p *Pool) layerLanes(layer int) []lane {
	at := p.lanesOf[layer]
	return p.lanes[at : at+p.m.o.KVHeads/p.heads]
}

// grow makes the lane's table cover units.
func (p *Pool) cover(ln *lane, units int) error {
	if units <= len(ln.at) {
		return nil
	}
	units += units/8 + 64
	if err := p.charge(int64(4 * (units - len(ln.at)))); err != nil {
		return err
	}
	at := make([]int32, units)
	for i := copy(at, ln.at); i < units; i++ {
		at[i] = -1
	}
	ln.at = at
	return nil
}

// slot is the memory of a slot.
func (p *Pool) slot(ln *lane, i int32) []byte {
	at := int(i) % chunkSlots * p.slotBytes
	return ln.bytes[int(i)/chunkSlots][at : at+p.slotBytes : at+p.slotBytes]
}

// place finds a slot for a unit: a free one, a new one where the limit and the budget allow, or that of the unit that is
// worth least. -1 = there is none.
func (p *Pool) place(ln *lane, unit int32, worth float32) int32 {
	i := p.vacant(ln)
	if i < 0 {
		return -1
	}
	if old := ln.owner[i]; old >= 0 {
		ln.at[old] = -1
	}
	ln.owner[i], ln.at[unit], ln.stamp[i], ln.worth[i] = unit, i, p.step, worth
	return i
}

// leastLeaving is how many slots are listed at a time to give way.
const leastLeaving = 16

func (p *Pool) vacant(ln *lane) int32 {
	if n := len(ln.free); n > 0 {
		i := ln.free[n-1]
		ln.free = ln.free[:n-1]
		return i
	}
	if len(ln.owner)+chunkSlots <= p.limit+chunkSlots/2 && p.addChunk(ln) {
		return p.vacant(ln)
	}
	for again := false; ; again = true {
		for ln.next < len(ln.leaving) {
			i := ln.leaving[ln.next]
			ln.next++
			if ln.stamp[i] < p.step {
				return i
			}
		}
		if again {
			return -1
		}
		p.giveWay(ln, max(ln.misses, leastLeaving))
	}
}

// addChunk adds slots to a lane where the budget has room that nothing else wants.
func (p *Pool) addChunk(ln *lane) bool {
	size := p.chunkBytes()
	if p.m.room(size+p.m.size[settled]*4) != nil || p.charge(size) != nil {
		return false
	}
	chunk, err := p.mem.take()
	if err != nil {
		p.refund(size)
		return false
	}
	first := int32(len(ln.owner))
	ln.chunks, ln.bytes = append(ln.chunks, chunk), append(ln.bytes, p.mem.data(chunk))
	for i := range int32(chunkSlots) {
		ln.owner, ln.stamp, ln.worth = append(ln.owner, -1), append(ln.stamp, 0), append(ln.worth, 0)
		ln.free = append(ln.free, first+chunkSlots-1-i)
	}
	return true
}

// dropChunk gives a lane's last chunk back, with what is in it.
func (p *Pool) dropChunk(ln *lane) {
	last := len(ln.chunks) - 1
	first := int32(last * chunkSlots)
	for _, u := range ln.owner[first:] {
		if u >= 0 {
			ln.at[u] = -1
		}
	}
	ln.owner, ln.stamp, ln.worth = ln.owner[:first], ln.stamp[:first], ln.worth[:first]
	ln.forgetLeaving()
	ln.free = slices.DeleteFunc(ln.free, func(i int32) bool { return i >= first })
	p.mem.drop(ln.chunks[last])
	ln.chunks, ln.bytes = ln.chunks[:last], ln.bytes[:last]
	p.refund(p.chunkBytes())
}

// Forget drops a token (its slots in every lane), by index in the cache.
func (p *Pool) Forget(index int32) {
	for i := range p.lanes {
		p.lanes[i].forget(index / int32(p.unit))
	}
}

func (ln *lane) forget(unit int32) {
	if int(unit) >= len(ln.at) || ln.at[unit] < 0 {
		return
	}
	i := ln.at[unit]
	ln.forgetLeaving()
	ln.at[unit], ln.owner[i] = -1, -1
	ln.free = append(ln.free, i)
}

// Cut forgets what lies from an index on: those tokens are gone.
func (p *Pool) Cut(index int32) {
	for i := range p.lanes {
		ln := &p.lanes[i]
		for u := (index + int32(p.unit) - 1) / int32(p.unit); int(u) < len(ln.at); u++ {
			ln.forget(u)
		}
		ln.tail = min(ln.tail, int(index)/p.m.o.Layout.Tokens)
	}
}

// yield gives memory back that something else needs, a chunk of the fullest lane at a time; false = nothing is left.
func (p *Pool) yield() bool {
	var most *lane
	for i := range p.lanes {
		if ln := &p.lanes[i]; len(ln.chunks) > 0 && (most == nil || len(ln.chunks) > len(most.chunks)) && !p.inUse(i) {
			most = ln
		}
	}
	if most == nil {
		return false
	}
	p.limit = min(p.limit, max(len(most.owner)-chunkSlots, 0))
	p.dropChunk(most)
	p.mem.release()
	return true
}

// Free gives everything back.
func (p *Pool) Free() error {
	if p == nil {
		return nil
	}
	err := p.Abandon()
	for i := range p.lanes {
		for len(p.lanes[i].chunks) > 0 {
			p.dropChunk(&p.lanes[i])
		}
	}
	p.mem.close()
	p.stage.close()
	p.gather.close()
	p.out.close()
	p.refund(p.stats.Bytes)
	p.m.pools = slices.DeleteFunc(p.m.pools, func(x *Pool) bool { return x == p })
	p.lanes = nil
	return err
}
