package csdshim

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/wire"
)

// layer is what the sequence knows of a layer; mu is held.
func (q *sequence) layer(i int) *layerCodes {
	for len(q.layers) <= i {
		q.layers = append(q.layers, layerCodes{})
	}
	return &q.layers[i]
}

// codeCache keeps key codes in the drive's memory, as far as there is room, and makes the others from the keys on flash.
type codeCache struct {
	store *flash.Store
	ddr   bool    // codes are kept at all
	bytes float64 // of memory, for codes and the group buffer

	mu   sync.Mutex
	used atomic.Int64 // by codes; the group buffer may have the rest
	ioNs *atomic.Uint64
}

// groupBufferBytes is what tokens that wait for their group may take: the memory that key codes leave.
func (c *codeCache) groupBufferBytes() int64 {
	return int64(max(0, min(c.bytes, math.MaxInt64/2)-float64(c.used.Load())))
}

// take reserves memory for codes; false where there is not enough.
func (c *codeCache) take(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ddr || float64(c.used.Load()+int64(n)+c.store.GroupBufferBytes()) > c.bytes {
		return false
	}
	c.used.Add(int64(n))
	return true
}

func (c *codeCache) release(n int64) { c.used.Add(-n) }

// written makes the codes of a group that has just been stored, or forgets those of what was there before.
func (c *codeCache) written(q *sequence, layer, group int, stored []byte) {
	if !q.layout.canEncode() || !c.ddr {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l, size := q.layer(layer), q.layout.shape.CodeBytes()
	if l.groups.At(group) != nil {
		l.groups.Set(group, nil)
		c.release(int64(size))
	}
	if l.scales == nil && q.layout.shape.Codes.Scaled() {
		return
	}
	var e encoder
	codes := make([]byte, size)
	e.encode(codes, stored, &q.layout, l.scales)
	c.cache(q, l, group, codes)
}

// cache keeps a group's codes in the drive's DRAM, if they fit; q.mu is held. A slice that was cached never changes: a
// scoring may read it.
func (c *codeCache) cache(q *sequence, l *layerCodes, group int, codes []byte) {
	if l.groups.At(group) == nil && !q.gone && c.take(len(codes)) {
		l.groups.Set(group, codes)
	}
}

// tile is a group to score: its codes, and a mask of the tokens to score.
type tile struct {
	group int
	mask  uint16
	codes []byte // nil until they are made
}

// tiles lists the groups of a layer that have cold tokens below limit (0: all), with the codes that are in DRAM.
func (c *codeCache) tiles(q *sequence, layer, limit int, dst []tile) ([]tile, error) {
	below := q.room
	if limit > 0 {
		below = (limit + wire.GroupTokens - 1) / wire.GroupTokens
	}
	stored := c.store.Groups(q.id, layer, below)
	q.mu.Lock()
	defer q.mu.Unlock()
	var none flash.Sparse[[]byte]
	cached := &none
	if layer < len(q.layers) {
		cached = &q.layers[layer].groups
	}
	for _, g := range stored {
		t := tile{group: g, mask: 0xffff &^ q.hot.At(g)}
		if over := (g+1)*wire.GroupTokens - limit; limit > 0 && over > 0 {
			t.mask &= 0xffff >> over
		}
		if t.mask == 0 {
			continue
		}
		if codes := cached.At(g); len(codes) > 0 {
			t.codes = codes
		}
		dst = append(dst, t)
	}
	return dst, nil
}

// loadCodes makes the codes that are not in DRAM from the keys on flash and, where there is room, keeps them. Groups that
// were dropped meanwhile are left out. It returns the tiles and the flash pages that were read.
func (c *codeCache) loadCodes(q *sequence, layer int, tiles []tile) ([]tile, []uint32, error) {
	l := &q.layout
	bytes := l.shape.RecordBytes()
	if l.split { // the keys alone
		bytes = l.valueAt(0, 0)
	}
	var reqs []flash.Request
	var versions []uint32
	kept := tiles[:0]
	for _, t := range tiles {
		if t.codes == nil {
			key := flash.Key{Seq: q.id, Layer: int32(layer), Group: int32(t.group)}
			version := c.store.Version(key)
			if version == 0 {
				continue
			}
			reqs, versions = append(reqs, flash.Request{Key: key}), append(versions, version)
		}
		kept = append(kept, t)
	}
	if len(reqs) == 0 {
		return kept, nil, nil
	}
	scales, err := c.scales(q, layer)
	if err != nil {
		return nil, nil, err
	}
	room := borrow(len(reqs) * bytes)
	defer giveBack(room)
	for i := range reqs {
		reqs[i].Dst = (*room)[i*bytes : (i+1)*bytes]
	}
	began := time.Now()
	pages, err := c.store.Get(reqs)
	c.ioNs.Add(uint64(time.Since(began)))
	if err != nil {
		return nil, nil, fmt.Errorf("csdshim: keys to score: %w", err)
	}
	c.encodeTiles(q, layer, kept, reqs, versions, scales)
	return kept, pages, nil
}

// encodeTiles makes the codes of those tiles that have none, from what was read for them.
func (c *codeCache) encodeTiles(q *sequence, layer int, tiles []tile, reqs []flash.Request, versions []uint32, scales []float32) {
	var e encoder
	size, at := q.layout.shape.CodeBytes(), 0
	made := make([]byte, len(reqs)*size)
	for i := range tiles {
		if tiles[i].codes != nil {
			continue
		}
		codes := made[at*size : (at+1)*size] // with the next one's behind it, for adjacent
		e.encode(codes, reqs[at].Dst, &q.layout, scales)
		tiles[i].codes = codes
		q.mu.Lock()
		// Not where it was written again meanwhile: its codes are others.
		if l := q.layer(layer); c.store.Version(reqs[at].Key) == versions[at] && slices.Equal(l.scales, scales) {
			c.cache(q, l, tiles[i].group, codes)
		}
		q.mu.Unlock()
		at++
	}
}
