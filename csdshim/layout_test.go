package csdshim

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"terrace/csdshim/wire"
	"terrace/internal/kvpage"
)

// TestLayoutKeepsRecords: what is stored of a record gives the record back, for every type and order of keys, and a token's key lies where
// spans say, number by number.
func TestLayoutKeepsRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, e := range []kvpage.Elem{kvpage.F32, kvpage.F16, kvpage.BF16, kvpage.I8, kvpage.I4} {
		for _, dim := range []int{32, 64, 80, 128} {
			for _, how := range [...]struct{ split, major bool }{{}, {split: true}, {major: true}, {true, true}} {
				p := kvpage.Layout{K: e, V: kvpage.F16, KeyDim: dim, ValueDim: 48, Tokens: wire.GroupTokens, TokenMajor: how.major}
				if how.major && e.Quantised() {
					continue
				}
				shape := wire.Shape{Layers: 1, KVHeads: 3, Page: p}
				l := layoutOf(shape, how.split)
				record := make([]byte, shape.RecordBytes())
				for i := range record {
					record[i] = byte(rng.Uint32())
				}
				stored, back := make([]byte, len(record)), make([]byte, len(record))
				l.pack(stored, record)
				l.unpack(back, stored)
				if !bytes.Equal(back, record) {
					t.Errorf("%v, split %v: another record comes back", p, how.split)
				}
				if size := e.Bits() / 8; l.byToken && !how.major {
					const token, head = 11, 2
					for d := range dim {
						want := record[head*p.PageBytes():][(d*kvpage.Tile+token)*size:][:size]
						if got := stored[l.keyAt(token, head)+d*size:][:size]; !bytes.Equal(got, want) {
							t.Fatalf("%v, split %v: number %d of a key is %v, want %v", p, how.split, d, got, want)
						}
					}
				}
			}
		}
	}
}
