package quant

import "math"

// fp4Values are twice the values of the E2M1 code points, as ggml keeps them (kvalues_mxfp4), so that they are whole.
var fp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// e8m0Half is half of 2^(e-127), the block scale of MXFP4 (half because fp4Values are doubled). Code 255 is NaN by the
// specification; CheckFinite refuses it before it gets here.
func e8m0Half(e byte) float32 {
	switch {
	case e == 255:
		return float32(math.NaN())
	case e < 2: // 2^-128 and 2^-127 are subnormal
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// dequantizeMXFP4: scale E8M0, 16 bytes of E2M1 nibbles (low nibble of byte j: value j, high nibble: value j+16).
func dequantizeMXFP4(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[17:] {
		d := e8m0Half(src[0])
		for j, q := range src[1:17] {
			dst[j] = d * fp4Values[q&15]
			dst[j+16] = d * fp4Values[q>>4]
		}
	}
}
