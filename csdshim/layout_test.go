package csdshim

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/csdshim/wire"
	"terrace/internal/kvpage"
)

// TestLayoutKeepsRecords: what is stored of a record gives the record back, for every type and order of keys, and a token's key lies where
// spans say, number by number.
func TestLayoutKeepsRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	whole := 0
	for _, e := range []kvpage.Elem{kvpage.F32, kvpage.F16, kvpage.BF16, kvpage.I8, kvpage.I4} {
		for _, dim := range [...][2]int{{32, 48}, {64, 48}, {80, 48}, {128, 48}, {64, 64}, {80, 80}, {128, 128}, {512, 32}} {
			for _, how := range [...]struct{ split, major bool }{{}, {split: true}, {major: true}, {true, true}} {
				p := kvpage.Layout{K: e, V: kvpage.F16, KeyDim: dim[0], ValueDim: dim[1], Tokens: wire.GroupTokens, TokenMajor: how.major}
				if how.major && e.Quantised() {
					continue
				}
				shape := wire.Shape{Layers: 1, KVHeads: 3, Page: p}
				l := layoutOf(shape, how.split, 512)
				if l.whole {
					whole++
				}
				record := make([]byte, shape.RecordBytes())
				for i := range record {
					record[i] = byte(rng.Uint32())
				}
				stored, back := make([]byte, len(record)), make([]byte, len(record))
				l.pack(stored, record)
				l.unpack(back, slices.Collect(slices.Chunk(stored, 512)))
				if !bytes.Equal(back, record) {
					t.Errorf("%v, split %v: another record comes back", p, how.split)
				}
				if size := e.Bits() / 8; l.byToken && !how.major {
					const token, head = 11, 2
					for d := range dim[0] {
						want := record[head*p.PageBytes():][(d*kvpage.Tile+token)*size:][:size]
						if got := stored[l.keyAt(token, head)+d*size:][:size]; !bytes.Equal(got, want) {
							t.Fatalf("%v, split %v: number %d of a key is %v, want %v", p, how.split, d, got, want)
						}
					}
				}
			}
		}
	}
	if whole == 0 || layoutOf(wire.Shape{KVHeads: 3, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 64, ValueDim: 64}}, false, 512).whole == false {
		t.Errorf("rows of 128 bytes count as cut by pages of 512 (%d layouts do not)", whole)
	}
}
