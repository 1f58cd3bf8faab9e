package csdshim

import (
	"math/bits"

	"terrace/csdshim/wire"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// layout says how a group's record lies on flash. Keys of float types are laid token by token, so that a gather reads the
// flash pages of its tokens only: [16][KVHeads][key, value], or, where scoring reads keys from flash, all keys before all
// values. Quantised keys share scales over the group; their pages stay as they are and cannot be gathered from.
type layout struct {
	shape   wire.Shape
	byToken bool
	split   bool // keys first, then values
	// Sizes in bytes: of a token's key and value of one KV head, and of a page's keys.
	keyRowBytes, valueRowBytes, keyBytes int

	pageBytes int  // of flash, a power of two
	whole     bool // no key and no value of a token and head lies on two flash pages
}

func layoutOf(s wire.Shape, split bool, pageBytes int) layout {
	l := layout{shape: s, byToken: !s.Page.K.Quantised(), split: split, pageBytes: pageBytes}
	l.keyRowBytes, l.valueRowBytes, l.keyBytes = s.Page.KeyDim*s.Page.K.Bits()/8, s.Page.VRowBytes(), s.Page.KBytes()
	l.whole = l.byToken
	for i := 0; l.whole && i < wire.GroupTokens*s.KVHeads; i++ {
		t, h := i/s.KVHeads, i%s.KVHeads
		l.whole = l.keyAt(t, h)%pageBytes+l.keyRowBytes <= pageBytes && l.valueAt(t, h)%pageBytes+l.valueRowBytes <= pageBytes
	}
	return l
}

// keyRow and valueRow are the sizes of a token's key and value of one KV head.
func (l *layout) keyRow() int   { return l.keyRowBytes }
func (l *layout) valueRow() int { return l.valueRowBytes }

// keyAt and valueAt are where a token's row of a KV head lies in the stored bytes.
func (l *layout) keyAt(token, head int) int {
	if l.split {
		return (token*l.shape.KVHeads + head) * l.keyRow()
	}
	return (token*l.shape.KVHeads + head) * (l.keyRow() + l.valueRow())
}

func (l *layout) valueAt(token, head int) int {
	if l.split {
		return wire.GroupTokens*l.shape.KVHeads*l.keyRow() + (token*l.shape.KVHeads+head)*l.valueRow()
	}
	return l.keyAt(token, head) + l.keyRow()
}

// pack turns a record into what is stored.
func (l *layout) pack(dst, record []byte) {
	if !l.byToken {
		copy(dst, record)
		return
	}
	page := l.shape.Page.PageBytes()
	for h := range l.shape.KVHeads {
		src := record[h*page : (h+1)*page]
		for t := range wire.GroupTokens {
			l.copyKey(dst[l.keyAt(t, h):][:l.keyRow()], src, t, false)
			copy(dst[l.valueAt(t, h):], src[l.keyBytes+t*l.valueRow():][:l.valueRow()])
		}
	}
}

// unpack turns a group's flash pages into the record.
func (l *layout) unpack(record []byte, pages [][]byte) {
	size := l.pageBytes
	if !l.whole {
		to := record
		if l.byToken { // rows on two pages are joined first
			room := borrow(len(record))
			defer giveBack(room)
			to = *room
		}
		for i, p := range pages {
			copy(to[i*size:], p)
		}
		if !l.byToken {
			return
		}
		pages, size = [][]byte{to}, 1<<62
	}
	shift := bits.TrailingZeros64(uint64(size))
	row := func(at, n int) []byte { return pages[at>>shift][at&(size-1):][:n] }
	page, e := l.shape.Page.PageBytes(), kernels.KVElem(l.shape.Page.K)
	var keys [wire.GroupTokens][]byte
	var starts [wire.GroupTokens]*byte
	for h := range l.shape.KVHeads {
		dst := record[h*page : (h+1)*page]
		for t := range keys {
			keys[t] = row(l.keyAt(t, h), l.keyRowBytes)
			starts[t] = &keys[t][0]
		}
		if l.shape.Page.TokenMajor {
			kernels.CopyRows(dst[:l.keyBytes], starts[:], l.keyRowBytes)
		} else {
			kernels.TurnKeys(e, dst[:l.keyBytes], keys[:], l.shape.Page.KeyDim)
		}
		for t := range starts {
			starts[t] = &row(l.valueAt(t, h), l.valueRowBytes)[0]
		}
		kernels.CopyRows(dst[l.keyBytes:], starts[:], l.valueRowBytes)
	}
}

// place writes a token's rows to a slot of a page.
func (l *layout) place(page []byte, slot int, key, value []byte) {
	l.copyKey(key[:l.keyRow()], page, slot, true)
	n := l.valueRow()
	copy(page[l.keyBytes+slot*n:][:n], value)
}

// copyKey copies the key of a page's slot to a row, or back.
func (l *layout) copyKey(row, page []byte, slot int, back bool) {
	if l.shape.Page.TokenMajor {
		if back {
			copy(page[slot*len(row):][:len(row)], row)
		} else {
			copy(row, page[slot*len(row):][:len(row)])
		}
		return
	}
	size, tile := l.shape.Page.K.Bits()/8, page[:l.keyBytes]
	if size == 2 {
		for at, i := slot*2, 0; i < len(row); at, i = at+kvpage.Tile*2, i+2 {
			if back {
				tile[at], tile[at+1] = row[i], row[i+1]
			} else {
				row[i], row[i+1] = tile[at], tile[at+1]
			}
		}
		return
	}
	for at, i := slot*size, 0; i < len(row); at, i = at+kvpage.Tile*size, i+size {
		if back {
			copy(tile[at:at+size], row[i:i+size])
		} else {
			copy(row[i:i+size], tile[at:at+size])
		}
	}
}

// spans are the stored bytes of count tokens from one on: one span, or keys and values.
func (l *layout) spans(token, count int) (at, size [2]int, n int) {
	keys, values := l.shape.KVHeads*l.keyRow(), l.shape.KVHeads*l.valueRow()
	if l.split {
		return [2]int{l.keyAt(token, 0), l.valueAt(token, 0)}, [2]int{count * keys, count * values}, 2
	}
	return [2]int{l.keyAt(token, 0)}, [2]int{count * (keys + values)}, 1
}
