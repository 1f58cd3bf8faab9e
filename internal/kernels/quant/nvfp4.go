package quant

import "math"

// e4m3Values are the values of the FP8 codes E4M3 (OCP 8-bit floating point, no infinities; 127 and 255 are NaN).
var e4m3Values = func() (values [256]float32) {
	for i := range values {
		exponent, mantissa := i>>3&15, float64(i&7)
		v := (1 + mantissa/8) * math.Pow(2, float64(exponent)-7)
		switch {
		case i&127 == 127:
			v = math.NaN()
		case exponent == 0:
			v = mantissa / 8 * math.Pow(2, -6)
		}
		if i > 127 {
			v = -v
		}
		values[i] = float32(v)
	}
	return values
}()

// E4M3 is the value of an FP8 code.
func E4M3(code byte) float32 { return e4m3Values[code] }

// NVScale is the scale that an NVFP4 block's byte stands for: half of the value of an unsigned E4M3 code (half because fp4Values are
// doubled). As in ggml the sign is not looked at, 127 is 0, and 255, which no writer makes, is 240.
func NVScale(code byte) float32 {
	switch code {
	case 127:
		return 0
	case 255:
		return 240
	}
	return e4m3Values[code&127] / 2
}

// dequantizeNVFP4: four E4M3 scales of 16 values each, then of each 16 values 8 bytes of E2M1 nibbles (low nibble of byte j: value j,
// high nibble: value j+8).
func dequantizeNVFP4(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[64:], src[36:] {
		for s := range 4 {
			d, out := NVScale(src[s]), dst[16*s:16*s+16]
			for j, q := range src[4+8*s : 12+8*s] {
				out[j] = d * fp4Values[q&15]
				out[j+8] = d * fp4Values[q>>4]
			}
		}
	}
}
