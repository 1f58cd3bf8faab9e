package quant

import (
	"encoding/binary"
	"math"
)

// Types of published checkpoints whose scales are float32, which no GGUF type holds exactly. They exist in memory only: GGUF files that
// use their numbers are refused.
const (
	// F8_E4M3 is 32 FP8 codes (OCP 8-bit floating point, E4M3) under one float32 scale: 4 bytes, then a code each.
	F8_E4M3 Type = 62
	// NVFP4_F32 is NVFP4 with its scales multiplied by the tensor's own: of 32 values two float32 scales of 16 values each, then of each
	// 16 values 8 bytes of E2M1 nibbles, as in NVFP4. The scales are those of doubled values.
	NVFP4_F32 Type = 63
)

// Internal reports whether t exists in memory only.
func (t Type) Internal() bool { return t == F8_E4M3 || t == NVFP4_F32 }

// largestScale of F8_E4M3 leaves room for what kernels multiply it with.
const largestScale = 0x1p100

func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

func dequantizeF8(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[36:] {
		d := float(src)
		for j, code := range src[4:36] {
			dst[j] = e4m3Values[code] * d
		}
	}
}

// finiteF8 returns the first block with a code that is NaN or a scale that is not finite or above largestScale.
func finiteF8(src []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for i := 0; i+36 <= len(src); i += 36 {
		var bad uint64 // a code plus 1 carries into the sign exactly if it is 127
		for j := 4; j < 36; j += 8 {
			bad |= binary.LittleEndian.Uint64(src[i+j:])&^high + ones
		}
		if d := float(src[i:]); bad&high != 0 || !(d >= -largestScale && d <= largestScale) {
			return i / 36
		}
	}
	return -1
}

func dequantizeNVFP4F32(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[24:] {
		for s := range 2 {
			d, out := float(src[4*s:]), dst[16*s:16*s+16]
			for j, q := range src[8+8*s : 16+8*s] {
				out[j] = d * fp4Values[q&15]
				out[j+8] = d * fp4Values[q>>4]
			}
		}
	}
}

func finiteNVFP4F32(src []byte) int {
	for i := 0; i+24 <= len(src); i += 24 {
		if finiteF32(src[i:i+8]) >= 0 {
			return i / 24
		}
	}
	return -1
}
