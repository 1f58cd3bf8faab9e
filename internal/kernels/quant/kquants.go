package quant

import "encoding/binary"

// The K types: super-blocks of 256 values whose sub-blocks of 16 or 32 have quantised scales of their own (ggml's block_q2_K
// to block_q6_K).

// dequantizeQ2K: 16 bytes of scale (low nibble) and minimum (high nibble) of each 16 values, 64 bytes of 2-bit values,
// scale of the scales f16, of the minima f16.
func dequantizeQ2K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[superBlock:], src[84:] {
		scales, qs := src[:16], src[16:80]
		d, dmin := half(src[80:]), half(src[82:])
		for i := range dst[:superBlock] { // value i: 128-value half, bit pair, 16-value sub-block
			q := qs[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3
			s := scales[i/16]
			dl, ml := d*float32(s&15), dmin*float32(s>>4)
			dst[i] = float32(dl*float32(q)) - ml
		}
	}
}

// scales3K unpacks the sixteen 6-bit scales of a Q3_K block from 12 bytes (less 32 still to be subtracted).
func scales3K(b []byte) (scales [16]int) {
	for i := range scales {
		low := b[i%8] >> (i / 8 * 4) & 15
		high := b[8+i%4] >> (i / 4 * 2) & 3
		scales[i] = int(low | high<<4)
	}
	return scales
}

// dequantizeQ3K: 32 bytes of third bits (set = do not subtract 4), 64 bytes of 2-bit values, 12 bytes of 6-bit scales, scale
// of the scales f16.
func dequantizeQ3K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[superBlock:], src[110:] {
		hmask, qs, scales := src[:32], src[32:96], scales3K(src[96:108])
		all := half(src[108:])
		for i := range dst[:superBlock] {
			q := int(qs[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3)
			if hmask[i%32]>>(i/32)&1 == 0 {
				q -= 4
			}
			dl := all * float32(scales[i/16]-32)
			dst[i] = dl * float32(q)
		}
	}
}

// scaleMin4K returns the 6-bit scale and minimum of sub-block j (of eight) of a Q4_K or Q5_K block (get_scale_min_k4).
func scaleMin4K(j int, b []byte) (scale, minimum byte) {
	if j < 4 {
		return b[j] & 63, b[j+4] & 63
	}
	return b[j+4]&15 | b[j-4]>>6<<4, b[j+4]>>4 | b[j]>>6<<4
}

// dequantizeQ4K: scale of scales f16, of minima f16, 12 bytes of eight 6-bit scales and minima, 128 bytes of nibbles: of each
// 32 bytes the low nibbles are one sub-block, the high nibbles the next.
func dequantizeQ4K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[superBlock:], src[144:] {
		d, dmin := half(src), half(src[2:])
		for j := 0; j < 8; j += 2 {
			s0, m0 := scaleMin4K(j, src[4:16])
			s1, m1 := scaleMin4K(j+1, src[4:16])
			d0, min0 := d*float32(s0), dmin*float32(m0)
			d1, min1 := d*float32(s1), dmin*float32(m1)
			out := dst[j*32 : j*32+64]
			for l, q := range src[16+j*16 : 16+j*16+32] {
				out[l] = float32(d0*float32(q&15)) - min0
				out[l+32] = float32(d1*float32(q>>4)) - min1
			}
		}
	}
}

// dequantizeQ5K: as Q4_K with 32 bytes of fifth bits before the nibbles (bit j of byte l: value l of sub-block j).
func dequantizeQ5K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[superBlock:], src[176:] {
		d, dmin, high := half(src), half(src[2:]), src[16:48]
		for j := 0; j < 8; j += 2 {
			s0, m0 := scaleMin4K(j, src[4:16])
			s1, m1 := scaleMin4K(j+1, src[4:16])
			d0, min0 := d*float32(s0), dmin*float32(m0)
			d1, min1 := d*float32(s1), dmin*float32(m1)
			out := dst[j*32 : j*32+64]
			for l, q := range src[48+j*16 : 48+j*16+32] {
				out[l] = float32(d0*float32(q&15|high[l]>>j<<4&16)) - min0
				out[l+32] = float32(d1*float32(q>>4|high[l]>>(j+1)<<4&16)) - min1
			}
		}
	}
}

// dequantizeQ6K: 128 bytes of low nibbles, 64 bytes of high bit pairs, sixteen int8 scales, scale of the scales f16; values
// less 32.
func dequantizeQ6K(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[superBlock:], src[210:] {
		d := half(src[208:])
		for n := range 2 { // halves of 128 values
			ql, qh, sc := src[n*64:], src[128+n*32:], src[192+n*8:]
			out := dst[n*128 : n*128+128]
			for l := range 32 {
				h, a, b, is := int(qh[l]), int(ql[l]), int(ql[l+32]), l/16
				q1, q2 := a&15|h&3<<4, b&15|h>>2&3<<4
				q3, q4 := a>>4|h>>4&3<<4, b>>4|h>>6&3<<4
				out[l] = float32(d*float32(int8(sc[is]))) * float32(q1-32)
				out[l+32] = float32(d*float32(int8(sc[is+2]))) * float32(q2-32)
				out[l+64] = float32(d*float32(int8(sc[is+4]))) * float32(q3-32)
				out[l+96] = float32(d*float32(int8(sc[is+6]))) * float32(q4-32)
			}
		}
	}
}

// iq4Values are the sixteen levels of the non-linear 4-bit types (kvalues_iq4nl).
var iq4Values = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// dequantizeIQ4NL: as Q4_0 with levels from a table.
func dequantizeIQ4NL(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[32:], src[18:] {
		d := half(src)
		for j, q := range src[2:18] {
			dst[j] = d * iq4Values[q&15]
			dst[j+16] = d * iq4Values[q>>4]
		}
	}
}

// dequantizeIQ4XS: scale f16, eight high bit pairs of the scales, 4 bytes of their low nibbles, 128 bytes of nibbles (levels
// from the table; sub-blocks of 32 laid out as in Q4_0).
func dequantizeIQ4XS(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[superBlock:], src[136:] {
		d, high := half(src), binary.LittleEndian.Uint16(src[2:])
		for ib := range 8 {
			scale := int(src[4+ib/2]>>(ib%2*4)&15) | int(high>>(2*ib)&3)<<4
			dl := d * float32(scale-32)
			out := dst[ib*32 : ib*32+32]
			for j, q := range src[8+ib*16 : 8+ib*16+16] {
				out[j] = dl * iq4Values[q&15]
				out[j+16] = dl * iq4Values[q>>4]
			}
		}
	}
}
