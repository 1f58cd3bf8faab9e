package csdshim

import (
	"fmt"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/wire"
)

// cacheCodes keeps a group's codes in the drive's DRAM, if they fit.
func (d *Drive) cacheCodes(q *sequence, layer, group int, codes []byte) {
	if len(codes) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.layers) <= layer {
		q.layers = append(q.layers, layerCodes{})
	}
	l := &q.layers[layer]
	for len(l.groups) <= group {
		l.groups = append(l.groups, nil)
	}
	if l.groups[group] == nil {
		if q.gone || !d.takeDRAM(len(codes)) {
			return
		}
	}
	l.groups[group] = append([]byte(nil), codes...) // a new slice: a scoring may still read the old one
}

// tile is a group to score: its codes, and a mask of the tokens to score.
type tile struct {
	group int
	mask  uint16
	codes []byte // nil until they are read from flash
}

// tiles lists the groups of a layer that have cold tokens below limit (0: all), with the codes that are in DRAM.
func (d *Drive) tiles(q *sequence, layer, limit int, dst []tile) ([]tile, error) {
	n := d.store.Groups(q.id, layer)
	if limit > 0 {
		n = min(n, (limit+wire.GroupTokens-1)/wire.GroupTokens)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var cached [][]byte
	if layer < len(q.layers) {
		cached = q.layers[layer].groups
	}
	for g := range n {
		t := tile{group: g, mask: 0xffff}
		if g < len(q.hot) {
			t.mask &^= q.hot[g]
		}
		if over := (g+1)*wire.GroupTokens - limit; limit > 0 && over > 0 {
			t.mask &= 0xffff >> over
		}
		if t.mask == 0 {
			continue
		}
		if g < len(cached) && len(cached[g]) > 0 {
			t.codes = cached[g]
		}
		dst = append(dst, t)
	}
	if len(q.layers) == 0 && n == 0 {
		return dst, nil
	}
	return dst, nil
}

// loadCodes reads the codes that are not in DRAM from flash and, where there is room, keeps them. Groups that are not
// stored (holes) are left out. It returns the tiles and the pages that were read.
func (d *Drive) loadCodes(q *sequence, layer int, tiles []tile) ([]tile, []uint32, error) {
	size, off := q.layout.shape.CodeBytes(), q.layout.shape.RecordBytes()
	var reqs []flash.Request
	kept := tiles[:0]
	for _, t := range tiles {
		if t.codes == nil {
			key := flash.Key{Seq: q.id, Layer: int32(layer), Group: int32(t.group)}
			if d.store.Version(key) == 0 {
				continue
			}
			t.codes = make([]byte, size)
			reqs = append(reqs, flash.Request{Key: key, Off: off, Dst: t.codes})
		}
		kept = append(kept, t)
	}
	if len(reqs) == 0 {
		return kept, nil, nil
	}
	began := time.Now()
	pages, err := d.store.Get(reqs)
	d.counts.ioNs.Add(uint64(time.Since(began)))
	if err != nil {
		return nil, nil, fmt.Errorf("csdshim: key codes: %w", err)
	}
	if d.opts.Keys == KeysDDR {
		for _, r := range reqs {
			d.cacheCodes(q, layer, int(r.Key.Group), r.Dst)
		}
	}
	return kept, pages, nil
}
