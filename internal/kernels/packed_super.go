package kernels

// Packing of the types with super-blocks of 256 columns: dst is the header and the 8 records, b one super-block.

const lowNibbles, lowPairs, lowBits = 0x0F0F0F0F, 0x03030303, 0x01010101

// splitNibbles packs a sub-block whose 32 values are the low or (shift 4) high nibbles of 32 bytes.
func splitNibbles(dst []byte, r int, qs []byte, shift int) {
	_, _ = dst[255], qs[31]
	for i := range 4 {
		low := get32(qs[4*i:]) >> shift & lowNibbles
		high := get32(qs[4*i+16:]) >> shift & lowNibbles
		put32(dst[64*i+4*r:], low|high<<4)
	}
}

// splitBits packs bit s of 32 bytes into a plane of one bit each.
func splitBits(dst []byte, r int, qh []byte, s int) {
	var plane uint32
	for g := range 8 {
		plane |= get32(qh[4*g:]) >> s & lowBits << g
	}
	put32(dst[4*r:], plane)
}

// splitPairs packs the bit pairs at bit 2*t of 32 bytes into two planes of pairs.
func splitPairs(dst []byte, r int, q []byte, t int) {
	for p := range 2 {
		var plane uint32
		for i := range 4 {
			plane |= get32(q[16*p+4*i:]) >> (2 * t) & lowPairs << (2 * i)
		}
		put32(dst[64*p+4*r:], plane)
	}
}

// scaleMin6 unpacks the 6-bit scale and minimum of sub-block s (ggml's get_scale_min_k4).
func scaleMin6(s int, b []byte) (scale, minimum byte) {
	if s < 4 {
		return b[s] & 63, b[s+4] & 63
	}
	return b[s+4]&15 | b[s-4]>>6<<4, b[s+4]>>4 | b[s]>>6<<4
}

func packQ4K(dst []byte, r int, b []byte) {
	put16(dst[2*r:], get16(b))
	put16(dst[32+2*r:], get16(b[2:]))
	for s := range 8 {
		rec := dst[64+288*s:][:288]
		splitNibbles(rec, r, b[16+s/2*32:], s%2*4)
		rec[256+r], rec[272+r] = scaleMin6(s, b[4:16])
	}
}

func packQ5K(dst []byte, r int, b []byte) {
	put16(dst[2*r:], get16(b))
	put16(dst[32+2*r:], get16(b[2:]))
	for s := range 8 {
		rec := dst[64+352*s:][:352]
		splitNibbles(rec, r, b[48+s/2*32:], s%2*4)
		splitBits(rec[256:], r, b[16:48], s)
		rec[320+r], rec[336+r] = scaleMin6(s, b[4:16])
	}
}

func packQ6K(dst []byte, r int, b []byte) {
	put16(dst[2*r:], get16(b[208:]))
	for s := range 8 {
		n, t := s/4, s%4
		rec := dst[32+416*s:][:416]
		splitNibbles(rec, r, b[64*n+t%2*32:], t/2*4)
		splitPairs(rec[256:], r, b[128+32*n:], t)
		rec[384+r], rec[400+r] = b[192+2*s], b[193+2*s]
	}
}

func packQ2K(dst []byte, r int, b []byte) {
	put16(dst[2*r:], get16(b[80:]))
	put16(dst[32+2*r:], get16(b[82:]))
	for s := range 8 {
		rec := dst[64+160*s:][:160]
		splitPairs(rec, r, b[16+s/4*32:], s%4)
		rec[128+r], rec[144+r] = b[2*s], b[2*s+1]
	}
}

func packQ3K(dst []byte, r int, b []byte) {
	put16(dst[2*r:], get16(b[108:]))
	scales := b[96:108]
	for s := range 8 {
		rec := dst[32+224*s:][:224]
		splitPairs(rec, r, b[32+s/4*32:], s%4)
		splitBits(rec[128:], r, b[:32], s)
		for h := range 2 { // 6-bit scale i: low nibble in byte i%8, high pair in byte 8+i%4
			i := 2*s + h
			scale := scales[i%8]>>(i/8*4)&15 | scales[8+i%4]>>(i/4*2)&3<<4
			rec[192+16*h+r] = scale - 32
		}
	}
}

func packIQ4XS(dst []byte, r int, b []byte) {
	put16(dst[2*r:], get16(b))
	high := get16(b[2:])
	for s := range 8 {
		rec := dst[32+272*s:][:272]
		packNibbles(rec, r, b[8+16*s:])
		scale := b[4+s/2]>>(s%2*4)&15 | byte(high>>(2*s)&3<<4)
		rec[256+r] = scale - 32
	}
}
