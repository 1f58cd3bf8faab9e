package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// flavour is what a float kernel is emitted for: 16 lanes of AVX-512 or 8 of AVX2. It hides the instructions that
// differ; a kernel text that uses only its methods serves both.
type flavour struct {
	isa   string
	lanes int
	regs  []reg.VecPhysical
	next  int
}

var flavours = []func() *flavour{
	func() *flavour { return &flavour{isa: "avx512", lanes: 16, regs: zmmRegs} },
	func() *flavour { return &flavour{isa: "avx2", lanes: 8, regs: ymmRegs} },
}

func (f *flavour) wide() bool { return f.lanes == 16 }

// bytes is the size of a vector register.
func (f *flavour) bytes() int { return 4 * f.lanes }

func (f *flavour) begin(name, signature, doc string) {
	f.next = 0
	TEXT(name, NOSPLIT, signature)
	Doc(doc)
}

func (f *flavour) end() {
	VZEROUPPER()
	RET()
}

func (f *flavour) vec() reg.VecPhysical {
	if f.next == len(f.regs) {
		panic("out of vector registers")
	}
	f.next++
	return f.regs[f.next-1]
}

func (f *flavour) vecs(n int) []reg.VecPhysical {
	v := make([]reg.VecPhysical, n)
	for i := range v {
		v[i] = f.vec()
	}
	return v
}

func (f *flavour) zero(r reg.VecPhysical) {
	if f.wide() {
		VPXORD(r, r, r)
	} else {
		VPXOR(r, r, r)
	}
}

var floatConsts = map[float32]Mem{}

// floatConst is a float32 in read-only data.
func floatConst(v float32) Mem {
	if m, ok := floatConsts[v]; ok {
		return m
	}
	m := ConstData(constName(v), U32(math.Float32bits(v)))
	floatConsts[v] = m
	return m
}

func constName(v float32) string {
	const hex = "0123456789abcdef"
	b, s := math.Float32bits(v), "float"
	for i := 28; i >= 0; i -= 4 {
		s += string(hex[b>>i&15])
	}
	return s
}

// constant is a register that holds v in all lanes.
func (f *flavour) constant(v float32) reg.VecPhysical {
	r := f.vec()
	VBROADCASTSS(floatConst(v), r)
	return r
}

var vectorConsts = map[float32]Mem{}

// vectorConst is a float32 repeated over a ymm register in read-only data.
func vectorConst(v float32) Mem {
	if m, ok := vectorConsts[v]; ok {
		return m
	}
	m := GLOBL("v"+constName(v), RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(math.Float32bits(v)))
	}
	vectorConsts[v] = m
	return m
}

// operand is v in all lanes, in a register where there are enough of them.
func (f *flavour) operand(v float32) Op {
	if f.wide() {
		return f.constant(v)
	}
	return vectorConst(v)
}

// fma adds a·m to acc, m one float32 in memory broadcast to all lanes; tmp is clobbered where there is no embedded
// broadcast.
func (f *flavour) fma(m Mem, a, acc, tmp reg.VecPhysical) {
	if f.wide() {
		VFMADD231PS_BCST(m, a, acc)
		return
	}
	VBROADCASTSS(m, tmp)
	VFMADD231PS(tmp, a, acc)
}

// round rounds to the nearest integer.
func (f *flavour) round(src, dst reg.VecPhysical) {
	if f.wide() {
		VRNDSCALEPS(U8(8), src, dst)
	} else {
		VROUNDPS(U8(8), src, dst)
	}
}

// scale multiplies src by 2^n for integers n in [-252, 254]; tmp1 and tmp2 are clobbered (AVX2).
func (f *flavour) scale(n, src, dst, tmp1, tmp2 reg.VecPhysical) {
	if f.wide() {
		VSCALEFPS(n, src, dst)
		return
	}
	// 2^n as two factors, so that results down to denormals and up to infinity come out right.
	VCVTPS2DQ(n, tmp1)
	VPSRAD(U8(1), tmp1, tmp2)
	VPSUBD(tmp2, tmp1, tmp1)
	for _, t := range []reg.VecPhysical{tmp1, tmp2} {
		VPSLLD(U8(23), t, t)
		VPADDD(vectorConst(1), t, t)
	}
	VMULPS(tmp1, src, dst)
	VMULPS(tmp2, dst, dst)
}

// element describes how numbers of a page's float type become float32 lanes.
type element struct {
	name string
	size int // bytes; 0 for a quantised type
	bits int
}

var elements = []element{{"F32", 4, 32}, {"F16", 2, 16}, {"BF16", 2, 16}}

// quantisedElements have float32 kernels for AVX-512, for tiles of few tokens, and kernels in integers for both.
var quantisedElements = []element{{"I8", 0, 8}, {"I4", 0, 4}}

func (e element) quantised() bool { return e.size == 0 }

// widen loads one register of lanes numbers as float32.
func (f *flavour) widen(e element, m Mem, dst reg.VecPhysical) {
	switch e.name {
	case "F32":
		VMOVUPS(m, dst)
	case "F16":
		VCVTPH2PS(m, dst)
	case "BF16":
		VPMOVZXWD(m, dst)
		VPSLLD(U8(16), dst, dst)
	}
}

// at is base + disp.
func at(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// row is base + r·stride for r in 0..2.
func row(base, stride reg.Register, r, disp int) Mem {
	if r == 0 {
		return Mem{Base: base, Disp: disp}
	}
	return Mem{Base: base, Index: stride, Scale: uint8(r), Disp: disp}
}

// evex emits an EVEX-coded instruction of map 0F38, W0, 512 bits, on registers only: the assembler does not know these.
// pp: 2 = F3, 3 = F2. dst and src are zmm numbers; second is the register in vvvv, -1 for none.
func evex(pp, opcode byte, dst, second, src int) {
	inv := func(n, bit int) byte { return byte(^n >> bit & 1) }
	vvvv := 0
	if second >= 0 {
		vvvv = second
	}
	p0 := inv(dst, 3)<<7 | inv(src, 4)<<6 | inv(src, 3)<<5 | inv(dst, 4)<<4 | 2
	p1 := byte(^vvvv&15)<<3 | 4 | pp
	p2 := byte(0x40) | inv(vvvv, 4)<<3
	modrm := byte(0xc0 | dst&7<<3 | src&7)
	for _, b := range []byte{0x62, p0, p1, p2, opcode, modrm} {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(b)}})
	}
}

func num(r reg.VecPhysical) int { return int(r.(reg.Physical).PhysicalIndex()) }

// dotBF16 adds the products of the bf16 pairs of a and b to the float32 lanes of acc (VDPBF16PS).
func dotBF16(a, b, acc reg.VecPhysical) { evex(2, 0x52, num(acc), num(b), num(a)) }

// narrow2 rounds the float32 lanes of low and high to 32 bf16: low's first (VCVTNE2PS2BF16).
func narrow2(low, high, dst reg.VecPhysical) { evex(3, 0x72, num(dst), num(high), num(low)) }

// narrow rounds float32 lanes to 16 bf16 in the lower half of dst (VCVTNEPS2BF16).
func narrow(src, dst reg.VecPhysical) { evex(2, 0x72, num(dst), -1, num(src)) }
