package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	register("matmul_tiles", "amx", func() {
		tiles("Tiles", false)
		tiles("TilesOnce", true)
		tilePeaks()
	})
	register("matmul_bf16", "amx", func() {
		s := newSIMD("amx")
		for _, f := range formats {
			s.unpackBF16(f)
		}
		s.unpackF16()
		s.roundBF16()
		s.splitBF16()
	})
}

// Where tileArgs of package kernels has its fields.
const (
	argDst = 8 * iota
	argStride
	argFrom
	argPanel
	argAct
	argGroupBytes
	argSteps
	argGroups
	argNextAct
	argNextTile
	argTileStep
	argTileBytes
	argPanel2
	argPanelStep
)

// onceAhead is how many steps ahead panels that are used once are asked for.
const onceAhead = 4

// tiles emits the AMX product of 32 weight rows with groups of 32 activation rows. One step is 32 columns: an A tile is
// 16 activation rows by 32 bf16 (1 KiB), a B tile 16 pairs of columns by 16 weight rows by 2 (1 KiB); act holds two A
// tiles a step, panel and panel2 a B tile a step. The four products C stay in tiles 0..3 for all steps:
//
//	step: 4 tile loads (about 8 cycles each) beside 4 TDPBF16PS (16 cycles each, 8192 multiply-adds)
//
// so that the multiplier is the limit where the panel stays in the first-level cache. C starts as the rows of 32 numbers at from,
// or as zeros. Result C[i][j] goes to dst[16*i..][16*j..], rows strideBytes apart. Once is for few rows: the panel is read from
// memory, and asked for ahead. The tile state is configured
// and released inside the call: no goroutine ever leaves it behind, and the kernel saves it if a signal comes between.
func tiles(name string, once bool) {
	TEXT(name, NOSPLIT, "func(config, args *byte)")
	Pragma("noescape")
	Doc(name + " multiplies a bf16 panel of 32 weight rows with groups of 32 bf16 activation rows; args is a tileArgs of package kernels.")
	Load(Param("config"), reg.RAX)
	tileConfig(regAX)
	stride, panel2, left, tileRow, act, panel := reg.RAX, reg.RBX, reg.RCX, reg.RDX, reg.RSI, reg.RDI
	ownDst, nextTile, panelStep, tileBytes, from, tileStep, nextFrom, nextAct := reg.R8, reg.R9, reg.R10, reg.R11, reg.R12, reg.R13, reg.R14, reg.R15
	args := func() reg.Register { return Load(Param("args"), left) }
	args()
	MOVQ(at(left, argStride), stride)
	MOVQ(at(left, argFrom), from)
	MOVQ(at(left, argTileStep), tileStep)
	MOVQ(at(left, argNextAct), nextAct)
	MOVQ(at(left, argNextTile), nextTile)
	MOVQ(at(left, argTileBytes), tileBytes)
	MOVQ(at(left, argPanelStep), panelStep)
	Label("group")
	args()
	MOVQ(at(left, argPanel), nextFrom)
	MOVQ(at(left, argPanel2), panel2)
	MOVQ(at(left, argDst), ownDst)
	TESTQ(from, from)
	JZ(LabelRef("zero"))
	MOVQ(from, panel)
	MOVQ(U32(128), tileRow)
	tileLoad(0, regDI, regDX, 0)
	tileLoad(1, regDI, regDX, 64)
	tileLoad(2, regDI, regDX, 2048)
	tileLoad(3, regDI, regDX, 2048+64)
	MOVQ(nextFrom, panel)
	ADDQ(U32(4096), from)
	MOVQ(from, nextFrom)
	JMP(LabelRef("start"))
	Label("zero")
	MOVQ(nextFrom, panel)
	for c := range 4 {
		tileZero(c)
	}
	Label("start")
	MOVQ(U32(64), tileRow)
	if once { // to be asked for: the two panels some steps ahead, near their end those tileBytes behind
		LEAQ(at(panel, 1024*onceAhead), ownDst)
		LEAQ(at(panel2, 1024*onceAhead), nextTile)
	}
	args()
	MOVQ(at(left, argAct), act)
	MOVQ(at(left, argSteps), left)
	Label("step")
	tileLoadStreaming(4, regSI, regDX, 0)
	tileLoad(6, regDI, regDX, 0)
	tileLoad(7, regBX, regDX, 0)
	tileLoadStreaming(5, regSI, regDX, 1024)
	tileDotBF16(0, 4, 6)
	tileDotBF16(1, 4, 7)
	tileDotBF16(2, 5, 6)
	tileDotBF16(3, 5, 7)
	if once {
		CMPQ(left, U8(onceAhead))
		JNZ(LabelRef("within"))
		ADDQ(tileBytes, ownDst)
		ADDQ(tileBytes, nextTile)
		Label("within")
		for i := range 16 {
			PREFETCHT0(at(ownDst, 64*i))
			PREFETCHT0(at(nextTile, 64*i))
		}
		ADDQ(panelStep, ownDst)
		ADDQ(panelStep, nextTile)
	} else {
		for i := range 4 {
			PREFETCHT0(at(nextFrom, 64*i))
		}
		PREFETCHT1(at(nextAct, 0))
		PREFETCHT1(at(nextAct, 64))
		PREFETCHT1(at(nextTile, 0))
		PREFETCHT1(Mem{Base: nextTile, Index: tileBytes, Scale: 1})
		for range 2 {
			prefetchWriteR8(0)
			prefetchWriteR8(64)
			ADDQ(stride, ownDst)
		}
		ADDQ(U32(256), nextFrom)
		ADDQ(U32(128), nextAct)
		ADDQ(tileStep, nextTile)
	}
	ADDQ(U32(2048), act)
	ADDQ(panelStep, panel)
	ADDQ(panelStep, panel2)
	DECQ(left)
	JNZ(LabelRef("step"))
	args()
	dst := panel2
	MOVQ(at(left, argDst), dst)
	tileStore(0, regBX, regAX, 0)
	tileStore(1, regBX, regAX, 64)
	MOVQ(stride, act)
	SHLQ(U8(4), act)
	ADDQ(act, dst)
	tileStore(2, regBX, regAX, 0)
	tileStore(3, regBX, regAX, 64)
	ADDQ(act, dst)
	MOVQ(dst, at(left, argDst))
	MOVQ(at(left, argGroupBytes), act)
	ADDQ(act, at(left, argAct))
	DECQ(at(left, argGroups))
	JNZ(LabelRef("group"))
	tileRelease()
	RET()
}

// tilePeaks emits loops of nothing but products of tiles that stay in registers: what the matrix unit can do.
func tilePeaks() {
	for _, p := range []struct {
		name, doc string
		dot       func(c, a, b int)
	}{{"PeakBF16", "TDPBF16PS, 8192 multiply-adds each", tileDotBF16}, {"PeakInt8", "TDPBSSD, 16384 multiply-adds each", tileDotInt8}} {
		TEXT(p.name, NOSPLIT, "func(config, data *byte, n int)")
		Doc(p.name + " runs n times four " + p.doc + ", of the four tiles at data.")
		Load(Param("config"), reg.RAX)
		tileConfig(regAX)
		Load(Param("n"), reg.RCX)
		Load(Param("data"), reg.RSI)
		MOVQ(U32(64), reg.RDX)
		for t := range 4 {
			tileZero(t)
			tileLoad(4+t, regSI, regDX, 1024*t)
		}
		Label("loop")
		p.dot(0, 4, 6)
		p.dot(1, 4, 7)
		p.dot(2, 5, 6)
		p.dot(3, 5, 7)
		DECQ(reg.RCX)
		JNZ(LabelRef("loop"))
		tileRelease()
		RET()
	}
}

// interleave is the permutation of words that turns 16 words of column k and 16 of column k+1 into pairs a row.
func (s *simd) interleave() reg.VecPhysical {
	name := "interleave"
	m, ok := s.consts[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for r := range 16 {
			DATA(4*r, U32(uint32(r)|uint32(16+r)<<16))
		}
		s.consts[name] = m
	}
	r := s.vec()
	s.load(m, r)
	return r
}

// unpackBF16 emits the dequantisation of a tile's records into B tiles: record i to dst + i*2048, 16 pairs of columns
// by 16 rows by 2 bf16, rounded once from the exact float32 value. About 190 operations a record of 512 weights, which
// 512 rows of activations then multiply in 512 cycles.
func (s *simd) unpackBF16(f format) {
	name := "Unpack" + f.name
	s.function(name, "func(panel *byte, tile *byte, records int)",
		name+" writes the records of a "+f.name+" tile as bf16 B tiles, 2048 bytes apart.")
	panel := Load(Param("panel"), GP64())
	base := Load(Param("tile"), GP64())
	left := Load(Param("records"), GP64())
	w := s.vecs(8)
	t := s.vecs(4)
	order := s.interleave()
	sc := s.scaleRegs(f)
	values := s.weights(f, sc)
	u := s.unpacker(f, t[0], t[1])
	c := s.newCursor(f, base, 0)
	s.eachRecord(c, left, "", func() {
		u.emit(c.planes(0), w)
		s.emitScales(c, sc, t[0])
		values.prepare()
		for g, v := range w {
			for j := range 4 {
				values.column(v, g, j, t[j])
			}
			for p := range 2 {
				pairsToBF16(t[2*p], t[2*p+1], t[2*p])
				VPERMW(t[2*p], order, t[2*p])
				VMOVDQU32(t[2*p], Mem{Base: panel, Disp: (2*g + p) * 64})
			}
		}
		ADDQ(U32(2048), panel)
	})
	VZEROUPPER()
	RET()
}

// unpackF16 emits the same for packed F16 tiles.
func (s *simd) unpackF16() {
	s.function("UnpackF16", "func(panel *byte, tile *byte, records int)",
		"UnpackF16 writes 32-column spans of a packed F16 tile as bf16 B tiles, 2048 bytes apart.")
	panel := Load(Param("panel"), GP64())
	tile := Load(Param("tile"), GP64())
	left := Load(Param("records"), GP64())
	a, b := s.vec(), s.vec()
	order := s.interleave()
	Label("record")
	for p := range 16 {
		VCVTPH2PS(Mem{Base: tile, Disp: p * 64}, a)
		VCVTPH2PS(Mem{Base: tile, Disp: p*64 + 32}, b)
		pairsToBF16(a, b, a)
		VPERMW(a, order, a)
		VMOVDQU32(a, Mem{Base: panel, Disp: p * 64})
	}
	ADDQ(U32(1024), tile)
	ADDQ(U32(2048), panel)
	DECQ(left)
	JNZ(LabelRef("record"))
	VZEROUPPER()
	RET()
}

// roundBF16 emits the conversion of one activation row to its place in the A tiles.
func (s *simd) roundBF16() {
	s.function("Round", "func(act *byte, x *float32, records int)",
		"Round writes 32*records floats as bf16, each 32 (64 bytes) 2048 bytes after the last.")
	act := Load(Param("act"), GP64())
	x := Load(Param("x"), GP64())
	left := Load(Param("records"), GP64())
	a, b := s.vec(), s.vec()
	Label("record")
	VMOVUPS(Mem{Base: x}, a)
	VMOVUPS(Mem{Base: x, Disp: 64}, b)
	pairsToBF16(a, b, a)
	VMOVDQU32(a, Mem{Base: act})
	ADDQ(U32(2048), act)
	ADDQ(U32(128), x)
	DECQ(left)
	JNZ(LabelRef("record"))
	VZEROUPPER()
	RET()
}

// splitBF16 emits the conversion of one activation row to its places in pairs of A tiles: what bf16 holds of a number, and what it
// leaves, in bf16 too. Both together have 16 bits of it.
func (s *simd) splitBF16() {
	s.function("Split", "func(act *byte, x *float32, records int)",
		"Split writes 32*records floats as bf16, each 32 (64 bytes) 2048 bytes after the last, and 1024 bytes behind what that leaves.")
	act := Load(Param("act"), GP64())
	x := Load(Param("x"), GP64())
	left := Load(Param("records"), GP64())
	a, b, both, wide := s.vec(), s.vec(), s.vec(), s.vec()
	Label("record")
	VMOVUPS(Mem{Base: x}, a)
	VMOVUPS(Mem{Base: x, Disp: 64}, b)
	pairsToBF16(a, b, both)
	VMOVDQU32(both, Mem{Base: act})
	for i, v := range []reg.VecPhysical{a, b} {
		VPMOVZXWD(Mem{Base: act, Disp: 32 * i}, wide)
		VPSLLD(U8(16), wide, wide)
		VSUBPS(wide, v, v)
	}
	pairsToBF16(a, b, both)
	VMOVDQU32(both, Mem{Base: act, Disp: 1024})
	ADDQ(U32(2048), act)
	ADDQ(U32(128), x)
	DECQ(left)
	JNZ(LabelRef("record"))
	VZEROUPPER()
	RET()
}
