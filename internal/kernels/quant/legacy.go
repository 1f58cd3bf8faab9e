package quant

import "encoding/binary"

// The blocks of 32 values with one scale: ggml's block_q4_0, q4_1, q5_0, q5_1, q8_0. In the 4- and 5-bit ones the low nibble
// of byte j is value j, the high nibble value j+16.

// dequantizeQ8_0: scale f16, 32 × int8.
func dequantizeQ8_0(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[34:] {
		d := half(src)
		for j, q := range src[2:34] {
			dst[j] = float32(int8(q)) * d
		}
	}
}

// dequantizeQ4_0: scale f16, 16 bytes of nibbles less 8.
func dequantizeQ4_0(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[18:] {
		d := half(src)
		for j, q := range src[2:18] {
			dst[j] = float32(int(q&15)-8) * d
			dst[j+16] = float32(int(q>>4)-8) * d
		}
	}
}

// dequantizeQ4_1: scale f16, minimum f16, 16 bytes of nibbles.
func dequantizeQ4_1(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[20:] {
		d, m := half(src), half(src[2:])
		for j, q := range src[4:20] {
			dst[j] = float32(float32(q&15)*d) + m
			dst[j+16] = float32(float32(q>>4)*d) + m
		}
	}
}

// dequantizeQ5_0: scale f16, 32 fifth bits, 16 bytes of nibbles; less 16.
func dequantizeQ5_0(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[22:] {
		d, high := half(src), binary.LittleEndian.Uint32(src[2:])
		for j, q := range src[6:22] {
			dst[j] = float32(int(uint32(q&15)|high>>j<<4&16)-16) * d
			dst[j+16] = float32(int(uint32(q>>4)|high>>(j+16)<<4&16)-16) * d
		}
	}
}

// dequantizeQ5_1: scale f16, minimum f16, 32 fifth bits, 16 bytes of nibbles.
func dequantizeQ5_1(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[24:] {
		d, m, high := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:])
		for j, q := range src[8:24] {
			dst[j] = float32(float32(uint32(q&15)|high>>j<<4&16)*d) + m
			dst[j+16] = float32(float32(uint32(q>>4)|high>>(j+16)<<4&16)*d) + m
		}
	}
}
