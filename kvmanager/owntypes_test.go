package kvmanager

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// TestOwnTypesOfLayers: layers of other types in a cache of int3 and int2 let go of 128 tokens at a time too, and have kvpage's bytes of them, in pages
// of their own size; where tokens are dropped, what stays is scaled in groups of the layer's type.
func TestOwnTypesOfLayers(t *testing.T) {
	types := []kvpage.Elem{kvpage.I4, kvpage.I8, kvpage.F16}
	o := Options{Layers: cacheshape.Equal(4, 2, cacheshape.KV{Heads: 2, KeyDim: 16, ValueDim: 32}), Window: 20, WindowSet: true, Layout: kvpage.Layout{K: kvpage.I3, V: kvpage.I2, Tokens: 128}}
	for i, e := range types {
		o.Layers[i].KV.Type = uint8(e) + 1
	}
	m := open(t, o)
	s := m.NewSequence()
	rnd, pos := rand.New(rand.NewPCG(3, 3)), make([]int32, 400)
	k, v := make([]float32, 400*32), make([]float32, 400*64)
	for i := range k {
		k[i] = float32(rnd.IntN(4000)-2000) / 256 // float16 has them
	}
	for i := range v {
		v[i] = float32(rnd.IntN(4000)-2000) / 256
	}
	for i := range pos {
		pos[i] = int32(i)
	}
	want := int64(0)
	for layer := range o.Layers {
		if err := s.Append(layer, k, v, pos); err != nil {
			t.Fatal(err)
		}
		s.Settle(layer)
		want += 2 * (2*int64(o.Layout.Of(o.Layers[layer].KV).PageBytes()) + 9*int64(kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 16, ValueDim: 32, Tokens: kvpage.Tile}.PageBytes()))
	}
	if s.Bytes() != want || m.BytesFor(400) != want {
		t.Errorf("%d bytes, computed %d, want %d", s.Bytes(), m.BytesFor(400), want)
	}
	held := func(layer int, tokens []int) {
		t.Helper()
		l := m.Layout(layer)
		if e := types[layer]; l.K != e || l.V != e || l.Tokens != 128 {
			t.Fatalf("layer %d: %v", layer, l)
		}
		for g := range 2 {
			data, at, err := s.AppendMain(nil, layer, g, 0, s.MainTokens(layer, g))
			if err != nil || len(at) != len(tokens) || len(data) != (len(tokens)+127)/128*l.PageBytes() {
				t.Fatalf("layer %d: %d tokens in %d bytes, want %d; %v", layer, len(at), len(data), len(tokens), err)
			}
			for first := 0; first < len(tokens); first += 128 {
				var keys, values []float32
				for _, i := range tokens[first : first+128] {
					keys, values = append(keys, k[(2*i+g)*16:][:16]...), append(values, v[(2*i+g)*32:][:32]...)
				}
				page := make([]byte, l.PageBytes())
				kvpage.Append(l, page, 0, 128, keys, 16, values, 32)
				if !slices.Equal(page, data[first/128*l.PageBytes():][:l.PageBytes()]) {
					t.Fatalf("layer %d, head %d: tokens %d to %d have other bytes", layer, g, tokens[first], tokens[first+127])
				}
			}
		}
	}
	for layer := range types {
		held(layer, upTo(256))
	}
	keep := slices.Concat(upTo(100), []int{130, 150, 151}, upTo(300)[200:])
	for layer, e := range types {
		l := m.Layout(layer)
		old, _, err := s.AppendMain(nil, layer, 1, 0, 256)
		if err := errors.Join(err, s.Keep(layer, 1, keep)); err != nil {
			t.Fatal(err)
		}
		got, at, err := s.AppendMain(nil, layer, 1, 0, s.MainTokens(layer, 1))
		if err != nil || len(at) != 128 || at[127] != int32(keep[127]) {
			t.Fatalf("%v: %d tokens quantized, %v", e, len(at), err)
		}
		page, keys := make([]byte, l.PageBytes()), make([]float32, 128*16)
		for j, i := range keep[:128] {
			kvpage.ReadK(l, old[i/128*l.PageBytes():], i%128, keys[16*j:16*j+16])
			copy(l.VRow(page, j), l.VRow(old[i/128*l.PageBytes():], i%128))
		}
		for j := 0; j < 128; j += 16 {
			kvpage.PutGroupK(l, page, j/16, 16, keys[16*j:], 16, 0)
		}
		if !slices.Equal(page, got) {
			t.Errorf("%v: what stays has other bytes", e)
		}
	}
	s.Free()
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestOwnTypesThatDoNotFit: a layer's own type is of no larger groups than the cache's, and quantised only where that is.
func TestOwnTypesThatDoNotFit(t *testing.T) {
	for _, c := range []struct{ all, own kvpage.Elem }{{kvpage.F16, kvpage.I8}, {kvpage.I8, kvpage.I3}} {
		o := Options{Layers: cacheshape.Equal(2, 2, cacheshape.KV{Heads: 2, KeyDim: 16, ValueDim: 32}), Layout: kvpage.Layout{K: c.all, V: c.all, Tokens: 128}}
		o.Layers[1].KV.Type = uint8(c.own) + 1
		if _, err := New(o); !errors.Is(err, kvpage.ErrLayout) {
			t.Errorf("%v in a cache of %v: %v", c.own, c.all, err)
		}
	}
}
