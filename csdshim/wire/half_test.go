package wire

import (
	"math"
	"testing"

	"github.com/x448/float16"
)

// TestHalves: the short ways to and from half precision give what the library gives, for every half and for floats beside it.
func TestHalves(t *testing.T) {
	for h := range 1 << 16 {
		want := float16.Frombits(uint16(h)).Float32()
		got := halfFloat(uint16(h))
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("%04x is %g, want %g", h, got, want)
		}
		for _, f := range []float32{want, math.Nextafter32(want, 0), math.Nextafter32(want, math.MaxFloat32)} {
			if got, want := halfBits(f), float16.Fromfloat32(f).Bits(); got != want {
				t.Fatalf("%g is %04x, want %04x", f, got, want)
			}
		}
	}
}
