package csdshim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"terrace/csdshim/flash"
	"terrace/csdshim/wire"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// The drive makes its key codes itself, from the keys it stores and the scales it was told: with the scales of the whole
// prompt, which nobody knows while its first groups are written, and without a byte of codes on the link.

// SetScales says what a layer's keys are divided by to become integer codes (wire.Scales); it is durable when it returns.
// Groups that are stored get their codes at once, as far as DRAM holds them, later ones when they are written.
func (s *Session) SetScales(ctx context.Context, number uint64, layer int, scales []float32) (Timing, error) {
	q, err := s.find(number)
	if err != nil {
		return Timing{}, err
	}
	d, shape := s.d, q.layout.shape
	if _, err := q.key(layer, 0); err != nil {
		return Timing{}, err
	}
	if err := checkScales(shape, scales); err != nil {
		return Timing{}, err
	}
	t := d.begin(4 * len(scales))
	pages, err := d.store.Put([]flash.Item{{Key: q.scaleKey(layer), Parts: [][]byte{floatBytes(scales)}}})
	if err != nil {
		return Timing{}, err
	}
	d.codes.release(q.setScales(layer, slices.Clone(scales)))
	t.NANDBytes = uint64(len(pages) * d.opts.Profile.NAND.PageBytes)
	done := d.programmed(t, pages)
	if d.opts.Keys == KeysDDR {
		tiles, err := d.codes.tiles(q, layer, 0, nil)
		if err == nil {
			_, pages, err = d.codes.loadCodes(q, layer, tiles)
		}
		if err != nil {
			return Timing{}, err
		}
		done = max(done, d.flashReady(t, pages))
	}
	if err := t.until(ctx, done); err != nil {
		return Timing{}, err
	}
	return t.end(done), nil
}

// checkScales refuses scales that are not of the shape's codes.
func checkScales(shape Shape, scales []float32) error {
	switch {
	case shape.Codes == CodesProduct && len(scales) == shape.Centroids():
		return nil
	case shape.Codes == CodesProduct:
		return fmt.Errorf("csdshim: %d numbers for the centroids of %d KV heads of %d: want %d: %w", len(scales), shape.KVHeads, shape.Page.KeyDim, shape.Centroids(), ErrRequest)
	case !shape.Codes.Scaled() || len(scales) != shape.KVHeads && len(scales) != shape.Width():
		return fmt.Errorf("csdshim: %d scales for %v codes of %d KV heads of %d: want one a head, or one a number: %w", len(scales), shape.Codes, shape.KVHeads, shape.Page.KeyDim, ErrRequest)
	}
	if slices.Min(scales) < 0 {
		return fmt.Errorf("csdshim: a scale of %v: want 0 or more: %w", slices.Min(scales), ErrRequest)
	}
	return nil
}

// scaleKey is where a layer's scales are stored: behind the layers.
func (q *sequence) scaleKey(layer int) flash.Key {
	return flash.Key{Seq: q.id, Layer: int32(q.layout.shape.Layers + layer)}
}

// setScales forgets codes that were made with other scales; it returns the DRAM that they took.
func (q *sequence) setScales(layer int, scales []float32) (freed int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.layer(layer)
	if slices.Equal(l.scales, scales) {
		return 0
	}
	for _, codes := range l.groups.All(0) {
		freed += int64(len(codes))
	}
	l.scales = scales
	l.groups.Cut(0)
	return freed
}

// scales are a layer's, from flash after a restart. Codes in half precision need none.
func (c *codeCache) scales(q *sequence, layer int) ([]float32, error) {
	if !q.layout.shape.Codes.Scaled() {
		return nil, nil
	}
	q.mu.Lock()
	scales := q.layer(layer).scales
	q.mu.Unlock()
	if scales != nil {
		return scales, nil
	}
	sizes := []int{q.layout.shape.Width(), q.layout.shape.KVHeads} // the longer first: a shorter read fits too
	if q.layout.shape.Codes == CodesProduct {
		sizes = []int{q.layout.shape.Centroids()}
	}
	for _, n := range sizes {
		raw := make([]byte, 4*n)
		if _, err := c.store.Get([]flash.Request{{Key: q.scaleKey(layer), Dst: raw}}); err == nil {
			scales = make([]float32, n)
			for i := range scales {
				scales[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			}
			q.setScales(layer, scales)
			return scales, nil
		} else if !errors.Is(err, flash.ErrNotFound) {
			return nil, fmt.Errorf("csdshim: scales of layer %d: %w", layer, err)
		}
	}
	return nil, fmt.Errorf("csdshim: layer %d: nobody has said its scales: %w", layer, ErrNotFound)
}

func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// canEncode reports whether the layout's keys can be read one by one.
func (l *layout) canEncode() bool { return l.shape.Codes != CodesNone && l.byToken }

// encoder makes codes; it keeps its scratch.
type encoder struct {
	key   []float32
	half  []uint16
	codes []int8
}

// encode fills dst, the code tiles of a group, from its stored bytes.
func (e *encoder) encode(dst, stored []byte, l *layout, scales []float32) {
	dim, size := l.shape.Page.KeyDim, l.shape.CodeTileBytes()
	if cap(e.key) < dim {
		e.key, e.half, e.codes = make([]float32, dim), make([]uint16, dim), make([]int8, dim)
	}
	half := kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: dim, ValueDim: 1, Tokens: wire.GroupTokens}
	each := len(scales) / l.shape.KVHeads
	for h := range l.shape.KVHeads {
		tile := dst[h*size : (h+1)*size]
		for t := range wire.GroupTokens {
			e.read(l.shape.Page.K, stored[l.keyAt(t, h):][:l.keyRow()])
			if l.shape.Codes == CodesHalf {
				kvpage.PutK(half, tile, t, e.key[:dim])
				continue
			}
			if l.shape.Codes == CodesProduct {
				putPairs(tile, t, e.key[:dim], scales[h*each:(h+1)*each])
				continue
			}
			kernels.Quantise(e.codes[:dim], e.key[:dim], scales[h*each:(h+1)*each], kvpage.MostCode(l.shape.Codes.Elem()))
			kvpage.PutCode(l.shape.Codes.Elem(), tile, t, e.codes[:dim])
		}
	}
}

// read turns a row of a float type into float32.
func (e *encoder) read(elem kvpage.Elem, row []byte) {
	if elem == kvpage.F32 {
		for i := range len(row) / 4 {
			e.key[i] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
		}
		return
	}
	n := len(row) / 2
	for i := range n {
		e.half[i] = binary.LittleEndian.Uint16(row[2*i:])
	}
	if elem == kvpage.BF16 {
		kernels.BF16ToF32(e.key[:n], e.half[:n])
	} else {
		kernels.F16ToF32(e.key[:n], e.half[:n])
	}
}
