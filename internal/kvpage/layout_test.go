package kvpage

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
)

// TestLayoutSizes pins the bytes of a page: they are a format on disk.
func TestLayoutSizes(t *testing.T) {
	for _, c := range []struct {
		l           Layout
		kBits       float64 // bits an element, scales included
		vBits       float64
		kTile, vRow int
	}{
		{Layout{F32, F32, 64, 64, 16, false, false, 0}, 32, 32, 4096, 256},
		{Layout{F16, F16, 64, 64, 16, false, false, 0}, 16, 16, 2048, 128},
		{Layout{BF16, F16, 256, 256, 64, false, false, 0}, 16, 16, 8192, 512},
		{Layout{I8, I8, 64, 64, 16, false, false, 0}, 9, 8.25, 1152, 66},
		{Layout{I4, I4, 64, 64, 32, false, false, 0}, 6, 4.5, 768, 36},
		{Layout{I8, I4, 128, 96, 16, false, false, 0}, 9, 4.0 + 64.0/96, 2304, 56},
		{Layout{I4, I4, 40, 40, 16, false, false, 0}, 6, 5.6, 480, 28},
		{Layout{I4, I4, 80, 80, 16, false, false, 0}, 6, 5.6, 960, 56},
		{Layout{I3, I3, 64, 64, 128, false, false, 0}, 3 + 24.0/64 + 1.0/512, 3.25, 770, 26},
		{Layout{I2, I2, 256, 256, 256, false, false, 0}, 2 + 24.0/64 + 1.0/2048, 2.25, 2562, 72},
		{Layout{I3, I2, 40, 96, 128, false, false, 0}, 3*48.0/40 + 24.0/64 + 1.0/320, 2 + 32.0/96, 530, 28},
	} {
		if err := c.l.Validate(); err != nil {
			t.Errorf("%v: %v", c.l, err)
		}
		if c.l.KTileBytes() != c.kTile || c.l.VRowBytes() != c.vRow {
			t.Errorf("%v: tile %d, row %d bytes; want %d, %d", c.l, c.l.KTileBytes(), c.l.VRowBytes(), c.kTile, c.vRow)
		}
		n := float64(c.l.Tokens)
		if got := float64(8*c.l.KBytes()) / n / float64(c.l.KeyDim); math.Abs(got-c.kBits) > 1e-9 {
			t.Errorf("%v: %v bits a key element, want %v", c.l, got, c.kBits)
		}
		if got := float64(8*c.l.VBytes()) / n / float64(c.l.ValueDim); math.Abs(got-c.vBits) > 1e-9 {
			t.Errorf("%v: %v bits a value element, want %v", c.l, got, c.vBits)
		}
	}
}

// TestLayoutPlaces pins where single numbers lie: K dim-major in tiles, V token-major behind it.
func TestLayoutPlaces(t *testing.T) {
	l := Layout{F32, F32, 3, 2, 32, false, false, 0}
	page := make([]byte, l.PageBytes())
	for slot := range 32 {
		PutK(l, page, slot, []float32{float32(slot), float32(slot) + 100, float32(slot) + 200})
		PutV(l, page, slot, []float32{float32(slot) + 300, float32(slot) + 400})
	}
	at := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(page[4*i:])) }
	for _, c := range []struct {
		index int
		want  float32
	}{{0, 0}, {1, 1}, {16, 100}, {16*2 + 5, 205}, {48, 16}, {48 + 16 + 3, 119}, {96, 300}, {97, 400}, {96 + 2*31, 331}} {
		if got := at(c.index); got != c.want {
			t.Errorf("number %d of the page: %v, want %v", c.index, got, c.want)
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	good := Layout{F16, F16, 64, 64, 16, false, false, 0}
	for _, change := range []func(l *Layout){
		func(l *Layout) { l.K = 7 }, func(l *Layout) { l.V = 9 }, func(l *Layout) { l.KeyDim = 0 },
		func(l *Layout) { l.ValueDim = -1 }, func(l *Layout) { l.KeyDim = 1 << 20 }, func(l *Layout) { l.Tokens = 0 },
		func(l *Layout) { l.Tokens = 24 }, func(l *Layout) { l.Tokens = 1 << 20 },
		func(l *Layout) { l.K, l.TokenMajor = I8, true }, func(l *Layout) { l.K, l.TokenMajor = I4, true },
		func(l *Layout) { l.K, l.Tokens = I3, 64 }, func(l *Layout) { l.K, l.Tokens, l.TokenMajor = I2, 128, true },
	} {
		l := good
		change(&l)
		if err := l.Validate(); !errors.Is(err, ErrLayout) {
			t.Errorf("%v: error %v, want ErrLayout", l, err)
		}
	}
}

func TestParseElem(t *testing.T) {
	for e := F32; e <= I2; e++ {
		if got, err := ParseElem(e.String()); err != nil || got != e {
			t.Errorf("ParseElem(%q) = %v, %v", e.String(), got, err)
		}
	}
	for s, want := range map[string]Elem{"i8": I8, "i4": I4, "i3": I3, "i2": I2} {
		if got, err := ParseElem(s); err != nil || got != want {
			t.Errorf("ParseElem(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"fp8", "int5", "i16", "i32", ""} {
		if _, err := ParseElem(s); !errors.Is(err, ErrElem) || !strings.Contains(err.Error(), "bf16, int8, int4, int3, int2") {
			t.Errorf("ParseElem(%q): error %v, want ErrElem with the names", s, err)
		}
	}
	if got := Elem(77).String(); got != "Elem(77)" {
		t.Errorf("unknown type prints %q", got)
	}
}
