package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Writing int8 and int4 pages, to the byte as internal/kvpage writes them (quantised.go): keys have a scale a dimension over 16
// rows, values one over 64 dimensions. Of two numbers of which one is none, the second source of VMAXPS and VMINPS is kept, as a
// comparison in Go keeps what it had. Division bounds both, so that AVX-512's path calls these too.
func init() {
	f := flavours[1]()
	register("attn_put_codes", f.isa, func() {
		gather := []Mem{lowBytes(0), lowBytes(4)}
		for _, bits := range []int{8, 4} {
			f.putKeyCodes(bits)
			f.putValueCodes(bits, gather)
		}
	})
}

// codeWriter turns numbers into codes of 8 or 4 bits.
type codeWriter struct {
	f                              *flavour
	bits                           int
	magnitude, zero, scale, factor reg.VecPhysical
	low, high                      reg.VecPhysical // of the group; of 8 bits high alone, of magnitudes
	t                              reg.VecPhysical
}

func (f *flavour) newCodeWriter(bits int) *codeWriter {
	c := &codeWriter{f: f, bits: bits, zero: f.vec(), scale: f.vec(), factor: f.vec(), high: f.vec(), t: f.vec()}
	f.zero(c.zero)
	if bits == 4 {
		c.low = f.vec()
		return c
	}
	c.magnitude = f.filled(1<<31 - 1)
	return c
}

// first begins a group; of 4 bits with the numbers in t.
func (c *codeWriter) first() {
	if c.bits == 8 {
		c.f.zero(c.high)
		return
	}
	VMOVUPS(c.t, c.low)
	VMOVUPS(c.t, c.high)
}

// widen takes the numbers in t into the range.
func (c *codeWriter) widen() {
	if c.bits == 8 {
		VANDPS(c.magnitude, c.t, c.t)
	} else {
		VMINPS(c.low, c.t, c.low)
	}
	VMAXPS(c.high, c.t, c.high)
}

// fold makes the range of all lanes that of each.
func (c *codeWriter) fold() {
	lanes := func(v reg.VecPhysical, join func(...Op)) {
		VPERM2F128(U8(1), v, v, c.t)
		join(v, c.t, v)
		for _, order := range []uint8{0x4e, 0xb1} {
			VPERMILPS(U8(order), v, c.t)
			join(v, c.t, v)
		}
	}
	lanes(c.high, VMAXPS)
	if c.bits == 4 {
		lanes(c.low, VMINPS)
	}
}

// finish sets the factor of codes, and scale and t to the float16 scales and minima, in the low halves.
func (c *codeWriter) finish() {
	halves := func(v, to reg.VecPhysical) {
		VCVTPS2PH(U8(0), v, to.AsX())
		VCVTPH2PS(to.AsX(), v)
	}
	most := float32(127)
	if c.bits == 4 {
		most = 15
		VADDPS(c.zero, c.low, c.low) // no negative zero
		halves(c.low, c.t)
		VSUBPS(c.low, c.high, c.high)
	}
	VDIVPS(vectorConst(most), c.high, c.high)
	halves(c.high, c.scale)
	VMOVUPS(vectorConst(1), c.factor)
	VDIVPS(c.high, c.factor, c.factor)
	if c.bits == 8 { // a scale is not below 0 and a number
		VCMPPS(U8(4), c.zero, c.high, c.high) // not equal
		VANDPS(c.high, c.factor, c.factor)
		return
	}
	mask := c.scale
	VCMPPS(U8(0x16), c.zero, c.high, mask) // not less or equal
	VANDPS(mask, c.high, c.high)
	VANDPS(mask, c.factor, c.factor)
	VCMPPS(U8(4), vectorConst(float32(math.Inf(1))), c.high, mask) // not infinite
	VANDPS(mask, c.high, c.high)
	VANDPS(mask, c.factor, c.factor)
	VCVTPS2PH(U8(0), c.high, c.scale.AsX())
}

// code turns the numbers in v into codes in the low bits.
func (c *codeWriter) code(v reg.VecPhysical) {
	least, most := float32(-127), float32(127)
	if c.bits == 4 {
		least, most = 0, 15
		VSUBPS(c.low, v, v)
	}
	VMULPS(c.factor, v, v)
	VMOVUPS(vectorConst(most), c.t)
	VMINPS(v, c.t, v)
	VMOVUPS(vectorConst(least), c.t)
	VMAXPS(v, c.t, v)
	VADDPS(vectorConst(12582912), v, v)
}

// putKeyCodes emits the tile of 16 keys, 8 dimensions at a time: codes of four rows join in a dword of each dimension, and those of
// a dimension come together by interleaving.
func (f *flavour) putKeyCodes(bits int) {
	name := map[int]string{8: "PutKeysI8", 4: "PutKeysI4"}[bits]
	f.begin(name, "func(tile *byte, k *float32, strideBytes, dim int)",
		name+" turns 16 rows of keys, strideBytes apart, into a tile of codes with a scale a dimension; dim is a multiple of 8.")
	tile, k, stride, dim := Load(Param("tile"), GP64()), Load(Param("k"), GP64()), Load(Param("strideBytes"), GP64()), Load(Param("dim"), GP64())
	row, codes, minima := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: tile, Index: dim, Scale: 2}, minima)
	MOVQ(minima, codes)
	if bits == 4 {
		LEAQ(Mem{Base: minima, Index: dim, Scale: 2}, codes)
	}
	c, mask := f.newCodeWriter(bits), f.filled(1<<bits-1)
	joined := f.vecs(bits / 2)
	v := f.vec()
	eachRow := func(do func(r int)) {
		MOVQ(k, row)
		for r := range 16 {
			do(r)
			ADDQ(stride, row)
		}
	}
	Label("loop")
	eachRow(func(r int) {
		VMOVUPS(at(row, 0), c.t)
		if r == 0 {
			c.first()
		}
		c.widen()
	})
	c.finish()
	VMOVDQU(c.scale.AsX(), at(tile, 0))
	if bits == 4 {
		VMOVDQU(c.t.AsX(), at(minima, 0))
	}
	eachRow(func(r int) {
		VMOVUPS(at(row, 0), v)
		c.code(v)
		VPAND(mask, v, v)
		to, shift := joined[r/4%len(joined)], 8*(r%4)+4*(r/4/len(joined))
		if shift > 0 {
			VPSLLD(U8(shift), v, v)
			VPOR(v, to, to)
		} else {
			VMOVDQA(v, to)
		}
	})
	var quads []reg.VecPhysical // of dimensions 0 and 4, 1 and 5, ...; of 4 bits of 0, 1 and 4, 5, then 2, 3 and 6, 7
	if j := joined; bits == 8 {
		VPUNPCKLDQ(j[1], j[0], v)
		VPUNPCKHDQ(j[1], j[0], j[0])
		VPUNPCKLDQ(j[3], j[2], j[1])
		VPUNPCKHDQ(j[3], j[2], j[2])
		VPUNPCKLQDQ(j[1], v, j[3])
		VPUNPCKHQDQ(j[1], v, v)
		VPUNPCKLQDQ(j[2], j[0], j[1])
		VPUNPCKHQDQ(j[2], j[0], j[0])
		quads = []reg.VecPhysical{j[3], v, j[1], j[0]}
	} else {
		VPUNPCKLDQ(j[1], j[0], v)
		VPUNPCKHDQ(j[1], j[0], j[0])
		quads = []reg.VecPhysical{v, j[0]}
	}
	for i, q := range quads {
		VMOVDQU(q.AsX(), at(codes, 16*i))
		VEXTRACTI128(U8(1), q, at(codes, 16*(i+len(quads))))
	}
	ADDQ(U8(16), tile)
	ADDQ(U8(16), minima)
	ADDQ(U8(32), k)
	ADDQ(U32(16*bits), codes)
	SUBQ(U8(8), dim)
	JNZ(LabelRef("loop"))
	f.end()
}

// putValueCodes emits the row of a value, 64 numbers at a time.
func (f *flavour) putValueCodes(bits int, gather []Mem) {
	name := map[int]string{8: "PutValueI8", 4: "PutValueI4"}[bits]
	f.begin(name, "func(row *byte, v *float32, groups int)", name+" turns so many groups of 64 numbers into codes with a scale a group.")
	row, src, groups := Load(Param("row"), GP64()), Load(Param("v"), GP64()), Load(Param("groups"), GP64())
	codes, scaleBytes := GP64(), 2
	if bits == 4 {
		scaleBytes = 4
	}
	LEAQ(Mem{Base: row, Index: groups, Scale: uint8(scaleBytes)}, codes)
	c, mask := f.newCodeWriter(bits), f.vec()
	if bits == 4 {
		mask = f.filled(0x0f0f0f0f)
	}
	v := f.vecs(4)
	sixteen := func(from int, v []reg.VecPhysical) {
		for i, r := range v {
			VMOVUPS(at(src, 4*from+32*i), r)
			c.code(r)
			VPSHUFB(gather[i], r, r)
		}
		VPOR(v[1], v[0], v[0])
		VEXTRACTI128(U8(1), v[0], v[1].AsX())
		VPUNPCKLDQ(v[1].AsX(), v[0].AsX(), v[0].AsX())
	}
	Label("loop")
	VBROADCASTSS(at(src, 0), c.t)
	c.first()
	for i := range 8 {
		VMOVUPS(at(src, 32*i), c.t)
		c.widen()
	}
	c.fold()
	c.finish()
	VPEXTRW(U8(0), c.scale.AsX(), at(row, 0))
	if bits == 4 {
		VPEXTRW(U8(0), c.t.AsX(), at(row, 2))
	}
	for i := range 8 / (scaleBytes) {
		if bits == 8 {
			sixteen(16*i, v[:2])
		} else {
			sixteen(32*i, v[:2])
			sixteen(32*i+16, v[2:])
			VPAND(mask, v[0], v[0])
			VPAND(mask, v[2], v[2])
			VPSLLW(U8(4), v[2], v[2])
			VPOR(v[2], v[0], v[0])
		}
		VMOVDQU(v[0].AsX(), at(codes, 16*i))
	}
	ADDQ(U8(scaleBytes), row)
	ADDQ(U32(256), src)
	ADDQ(U8(8*bits), codes)
	DECQ(groups)
	JNZ(LabelRef("loop"))
	f.end()
}
