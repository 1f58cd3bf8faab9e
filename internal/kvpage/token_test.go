package kvpage

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"
)

func layouts() []Layout {
	var out []Layout
	for k := F32; k <= I2; k++ {
		for v := F32; v <= I2; v++ {
			n := k.KeyGroup()
			out = append(out, Layout{K: k, V: v, KeyDim: 64, ValueDim: 96, Tokens: 2 * n}, Layout{K: k, V: v, KeyDim: 7, ValueDim: 32, Tokens: n}, Layout{K: k, V: v, KeyDim: 40, ValueDim: 43, Tokens: n})
			if !k.Quantised() {
				out = append(out, Layout{K: k, V: v, KeyDim: 64, ValueDim: 32, Tokens: 32, TokenMajor: true})
			}
		}
	}
	return out
}

func randomFloats(rnd *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rnd.NormFloat64() * 3)
	}
	return x
}

// limit is the largest error of a number read back: half a unit of the type's last place, or half a code step of the
// numbers that share a scale (and the float16 rounding of scale and minimum).
func limit(e Elem, x float32, group []float32) float64 {
	lo, hi, top := math.Inf(1), math.Inf(-1), 0.0
	for _, v := range group {
		lo, hi, top = min(lo, float64(v)), max(hi, float64(v)), max(top, math.Abs(float64(v)))
	}
	switch e {
	case F16:
		return math.Abs(float64(x))/2048 + 1e-7
	case BF16:
		return math.Abs(float64(x)) / 256
	case I8:
		return top/127*0.51 + top/2048
	case I4:
		return (hi-lo)/15*0.51 + top/1024
	case I3: // numbers far from the others are cut off: see TestLowBitsAreNearTheBest
		return (hi-lo)*0.5 + top/512
	case I2:
		return (hi-lo)*0.5 + top/512
	}
	return 0
}

// TestAppendReadsBack writes whole and partial pages and reads every number within the limit of its type.
func TestAppendReadsBack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, l := range layouts() {
		for _, n := range []int{1, 15, l.Tokens} {
			t.Run(fmt.Sprintf("%v/%d", l, n), func(t *testing.T) {
				kStride, vStride := l.KeyDim+3, l.ValueDim+5
				k, v := randomFloats(rnd, n*kStride), randomFloats(rnd, n*vStride)
				page := make([]byte, l.PageBytes())
				for i := range page {
					page[i] = byte(rnd.Uint32())
				}
				Append(l, page, 0, n, k, kStride, v, vStride)
				for slot := range n {
					checkToken(t, l, page, slot, n, k, kStride, v, vStride)
				}
			})
		}
	}
}

func checkToken(t *testing.T, l Layout, page []byte, slot, n int, k []float32, kStride int, v []float32, vStride int) {
	t.Helper()
	got := make([]float32, max(l.KeyDim, l.ValueDim))
	ReadK(l, page, slot, got)
	for d := range l.KeyDim {
		var group []float32 // the channel over the tile
		for r, g := slot/l.K.KeyGroup()*l.K.KeyGroup(), l.K.KeyGroup(); r < min(n, (slot/g+1)*g); r++ {
			group = append(group, k[r*kStride+d])
		}
		want := k[slot*kStride+d]
		if e := math.Abs(float64(got[d] - want)); e > limit(l.K, want, group) {
			t.Fatalf("key of slot %d, dimension %d: %v, want %v (error %.3g, limit %.3g)", slot, d, got[d], want, e, limit(l.K, want, group))
		}
	}
	ReadV(l, page, slot, got)
	for d := range l.ValueDim {
		g := d / valueGroup * valueGroup
		want := v[slot*vStride+d]
		group := v[slot*vStride+g : slot*vStride+min(l.ValueDim, g+valueGroup)]
		if e := math.Abs(float64(got[d] - want)); e > limit(l.V, want, group) {
			t.Fatalf("value of slot %d, dimension %d: %v, want %v (error %.3g, limit %.3g)", slot, d, got[d], want, e, limit(l.V, want, group))
		}
	}
}

// TestPutLeavesOthers: writing a slot changes no other token's bits.
func TestPutLeavesOthers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 1))
	l := Layout{F16, I4, 8, 32, 32, false, false, 0}
	page := make([]byte, l.PageBytes())
	Append(l, page, 0, 32, randomFloats(rnd, 32*8), 8, randomFloats(rnd, 32*32), 32)
	before := append([]byte(nil), page...)
	PutK(l, page, 17, randomFloats(rnd, 8))
	PutV(l, page, 17, randomFloats(rnd, 32))
	a, b := make([]float32, 32), make([]float32, 32)
	for slot := range 32 {
		ReadK(l, page, slot, a[:8])
		ReadK(l, before, slot, b[:8])
		same := fmt.Sprint(a[:8]) == fmt.Sprint(b[:8])
		ReadV(l, page, slot, a)
		ReadV(l, before, slot, b)
		if same = same && fmt.Sprint(a) == fmt.Sprint(b); same == (slot == 17) {
			t.Errorf("slot %d: unchanged %v", slot, same)
		}
	}
}

// TestMoveIsExact: a moved token has the same bits, NaN payloads included.
func TestMoveIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 1))
	for _, l := range layouts() {
		src, dst := make([]byte, l.PageBytes()), make([]byte, l.PageBytes())
		for i := range src {
			src[i], dst[i] = byte(rnd.Uint32()), byte(rnd.Uint32())
		}
		if Move(l, dst, 3, src, 11) == l.K.Quantised() {
			t.Fatalf("%v: Move possible %v", l, !l.K.Quantised())
		}
		if !l.K.Quantised() {
			size := l.K.Bits() / 8
			for d := range l.KeyDim {
				to, from := d*Tile+3, d*Tile+11
				if l.TokenMajor {
					to, from = 3*l.KeyDim+d, 11*l.KeyDim+d
				}
				if !bytes.Equal(dst[to*size:][:size], src[from*size:][:size]) {
					t.Fatalf("%v: dimension %d of the moved key differs", l, d)
				}
			}
			if !bytes.Equal(l.VRow(dst, 3), l.VRow(src, 11)) {
				t.Fatalf("%v: the moved value differs", l)
			}
		}
	}
}

// TestMoveRunIsMoves: tokens that move at once have the bits they get one by one, within a tile too.
func TestMoveRunIsMoves(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 1))
	for _, l := range layouts() {
		full := make([]byte, l.PageBytes())
		for i := range full {
			full[i] = byte(rnd.Uint32())
		}
		for to := range Tile {
			for from := to; from < Tile; from++ {
				for _, n := range []int{1, 2, Tile - from} {
					if n > Tile-from {
						continue
					}
					page, want := slices.Clone(full), slices.Clone(full)
					moved := MoveRun(l, page, to, page, from, n)
					if moved == l.K.Quantised() {
						t.Fatalf("%v: MoveRun possible %v", l, moved)
					}
					for i := range n {
						if moved {
							Move(l, want, to+i, want, from+i)
						}
					}
					if !bytes.Equal(page, want) {
						t.Fatalf("%v: %d tokens from %d to %d differ from single moves", l, n, from, to)
					}
				}
			}
		}
	}
}

// TestKeyOrders: a token-major page holds the same numbers, token by token, and tokens move between the orders bit for bit.
func TestKeyOrders(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 1))
	for _, e := range []Elem{F32, F16, BF16} {
		tiles, rows := Layout{e, F16, 5, 8, 32, false, false, 0}, Layout{e, F16, 5, 8, 16, true, false, 0}
		src, back := make([]byte, tiles.PageBytes()), make([]byte, tiles.PageBytes())
		Append(tiles, src, 0, 32, randomFloats(rnd, 32*5), 5, randomFloats(rnd, 32*8), 8)
		dst := make([]byte, rows.PageBytes())
		for slot := range 16 {
			rows.MoveFrom(dst, slot, tiles, src, 31-slot)
			tiles.MoveFrom(back, 31-slot, rows, dst, slot)
			key := make([]float32, 5)
			ReadK(tiles, src, 31-slot, key)
			for d, x := range key {
				if got := load(e, rows.KRow(dst, slot), d); got != x {
					t.Fatalf("%v: number %d of the key in slot %d is %v, want %v", e, d, slot, got, x)
				}
			}
		}
		if !bytes.Equal(back[tiles.KTileBytes():tiles.KBytes()], src[tiles.KTileBytes():tiles.KBytes()]) {
			t.Fatalf("%v: keys differ after both ways", e)
		}
	}
}

// TestF16 compares with github.com/x448/float16 on all codes and on random numbers.
func TestF16(t *testing.T) {
	for h := range 1 << 16 {
		want := float16.Frombits(uint16(h)).Float32()
		got := fromF16(uint16(h))
		if got != want && (got == got || want == want) {
			t.Fatalf("code %#04x is %v, want %v", h, got, want)
		}
		if want == want && toF16(want) != uint16(h) {
			t.Fatalf("%v rounds to %#04x, want %#04x", want, toF16(want), h)
		}
	}
	rnd := rand.New(rand.NewPCG(4, 1))
	for range 1 << 18 {
		f := math.Float32frombits(rnd.Uint32())
		if got, want := toF16(f), float16.Fromfloat32(f).Bits(); got != want && f == f {
			t.Fatalf("%v rounds to %#04x, want %#04x", f, got, want)
		}
	}
	if nan := fromF16(toF16(float32(math.NaN()))); nan == nan {
		t.Error("NaN became a number")
	}
}

func TestQuantisedKeysAreWrittenByGroup(t *testing.T) {
	l := Layout{I8, I8, 8, 32, 16, false, false, 0}
	for name, f := range map[string]func(page []byte){
		"PutK":   func(page []byte) { PutK(l, page, 0, make([]float32, 8)) },
		"Append": func(page []byte) { Append(l, page, 3, 1, make([]float32, 8), 8, make([]float32, 32), 32) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			f(make([]byte, l.PageBytes()))
		}()
	}
}

// TestQuantisedExtremes: constant groups are exact, and nothing finite becomes infinite or NaN.
func TestQuantisedExtremes(t *testing.T) {
	for _, e := range []Elem{I8, I4, I3, I2} {
		l := Layout{e, e, 4, 32, e.PageTokens(), false, false, 0}
		for _, x := range []float32{0, 1, -2.5, 1e-6, 60000, -60000} {
			page := make([]byte, l.PageBytes())
			k := make([]float32, 16*32)
			for i := range k {
				k[i] = x
			}
			Append(l, page, 0, 16, k, 4, k, 32)
			got := make([]float32, 32)
			ReadV(l, page, 7, got)
			kGot := make([]float32, 4)
			ReadK(l, page, 7, kGot)
			for _, g := range append(got, kGot...) {
				if e := math.Abs(float64(g - x)); !(e <= math.Abs(float64(x))/512+1e-6) {
					t.Errorf("%v: constant %v reads as %v", l.K, x, g)
				}
			}
		}
	}
}
