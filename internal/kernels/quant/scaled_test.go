package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// TestScaled decodes the types of float32 scales by their definition, and finds what is not finite.
func TestScaled(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	f8, fp4 := make([]byte, 3*36), make([]byte, 3*24)
	for i := range f8 {
		f8[i] = byte(rng.IntN(127)) | byte(rng.IntN(2))<<7
	}
	for i := range fp4 {
		fp4[i] = byte(rng.Uint32())
	}
	put := func(b []byte, x float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(x)) }
	for i := range 3 {
		put(f8[36*i:], float32(i)-1.3)
		put(fp4[24*i:], 0.7*float32(i))
		put(fp4[24*i+4:], 1e-3)
	}
	got := make([]float32, 96)
	Dequantize(F8_E4M3, got, f8)
	for i, v := range got {
		if want := (float32(i/32) - 1.3) * E4M3(f8[i/32*36+4+i%32]); v != want {
			t.Errorf("F8_E4M3 %d: %g, want %g", i, v, want)
		}
	}
	Dequantize(NVFP4_F32, got, fp4)
	for i, v := range got {
		block, half, j := fp4[i/32*24:], i%32/16, i%16
		scale := [2]float32{0.7 * float32(i/32), 1e-3}[half]
		if want := scale * fp4Values[block[8+8*half+j%8]>>(j/8*4)&15]; v != want {
			t.Errorf("NVFP4_F32 %d: %g, want %g", i, v, want)
		}
	}
	if a, b := CheckFinite(F8_E4M3, f8), CheckFinite(NVFP4_F32, fp4); a != -1 || b != -1 {
		t.Errorf("finite blocks: %d, %d", a, b)
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1)), 0x1p101} {
		put(f8[36:], bad)
		if got := CheckFinite(F8_E4M3, f8); got != 32 {
			t.Errorf("scale %g: %d, want 32", bad, got)
		}
	}
	put(f8[36:], 1)
	for _, code := range []byte{127, 255} {
		f8[71] = code
		if got := CheckFinite(F8_E4M3, f8); got != 32 {
			t.Errorf("code %d: %d, want 32", code, got)
		}
	}
	put(fp4[48+4:], float32(math.Inf(1)))
	if got := CheckFinite(NVFP4_F32, fp4); got != 64 {
		t.Errorf("infinite scale: %d, want 64", got)
	}
}
