package quant

import (
	"math"
	"testing"

	"github.com/x448/float16"
)

// TestHalf compares every half-precision number, both ways, with package float16.
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		got, want := f16(uint16(h)), float16.Frombits(uint16(h)).Float32()
		if math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
			t.Fatalf("f16(%#04x) = %g, want %g", h, got, want)
		}
		if back := toF16(got); got == got && back != uint16(h) {
			t.Fatalf("toF16(f16(%#04x)) = %#04x", h, back)
		}
	}
	if x := f16(toF16(float32(math.NaN()))); x == x {
		t.Error("NaN became a number")
	}
}

// TestHalfRounding rounds float32 numbers all over the range, the neighbours of ties among them.
func TestHalfRounding(t *testing.T) {
	check := func(b uint32) {
		x := math.Float32frombits(b)
		if x != x {
			return
		}
		if got, want := toF16(x), float16.Fromfloat32(x).Bits(); got != want {
			t.Fatalf("toF16(%g) = %#04x, want %#04x", x, got, want)
		}
		exact := math.Float32frombits(uint32(toBF16(x)) << 16)
		step := math.Abs(float64(math.Float32frombits(b&^0xffff+0x10000)) - float64(math.Float32frombits(b&^0xffff)))
		if d := math.Abs(float64(exact) - float64(x)); d > step/2 && !math.IsInf(float64(exact), 0) {
			t.Fatalf("toBF16(%g) = %g, off by more than half a step", x, exact)
		}
	}
	for b := uint32(0); b < 1<<32-1<<13; b += 0x7ff1 {
		check(b)
	}
	for h := uint32(0); h < 1<<16; h++ { // ties between halves and what is beside them
		mid := math.Float32bits(f16(uint16(h))) + 0x1000
		check(mid - 1)
		check(mid)
		check(mid + 1)
	}
	for _, c := range []struct {
		bits uint32
		want uint16
	}{{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x7f7fffff, 0x7f80}, {0x7fc00000, 0x7fc0}, {0x7f800001, 0x7fc0}} {
		if got := toBF16(math.Float32frombits(c.bits)); got != c.want {
			t.Errorf("toBF16(%#08x) = %#04x, want %#04x", c.bits, got, c.want)
		}
	}
}
