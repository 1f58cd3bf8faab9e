package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Instructions that neither avo nor Go's assembler knows, as bytes. Registers are physical.

// emitBytes writes one instruction, with its text as a comment.
func emitBytes(text string, b ...byte) {
	Comment(text)
	for _, v := range b {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(v)}})
	}
}

// Mandatory prefixes of VEX and EVEX (field pp).
const (
	ppNone = 0
	pp66   = 1
	ppF3   = 2
	ppF2   = 3
)

// evex0F38 encodes a 512-bit register-only instruction of the 0F38 map with W = 0: reg and rm are the operands of
// ModRM, vvvv is the one in the prefix (0 where there is none).
func evex0F38(text string, opcode byte, pp, regNo, vvvv, rm int) {
	bit := func(v, n int) byte { return byte(v >> n & 1) }
	p0 := (1-bit(regNo, 3))<<7 | (1-bit(rm, 4))<<6 | (1-bit(rm, 3))<<5 | (1-bit(regNo, 4))<<4 | 2
	p1 := byte(^vvvv&15)<<3 | 1<<2 | byte(pp)
	p2 := byte(2)<<5 | (1-bit(vvvv, 4))<<3
	emitBytes(text, 0x62, p0, p1, p2, opcode, 0xC0|byte(regNo&7)<<3|byte(rm&7))
}

func zmmNo(r reg.VecPhysical) int {
	for i, z := range zmmRegs {
		if z == r {
			return i
		}
	}
	panic("not a zmm register")
}

// pairsToBF16 sets dst to 16 bf16 of low (words 0..15) and 16 bf16 of high (words 16..31), to nearest even
// (VCVTNE2PS2BF16 of AVX512_BF16).
func pairsToBF16(low, high, dst reg.VecPhysical) {
	evex0F38("VCVTNE2PS2BF16 "+low.Asm()+", "+high.Asm()+", "+dst.Asm(), 0x72, ppF2, zmmNo(dst), zmmNo(high), zmmNo(low))
}

// vex0F38 encodes an AMX instruction: VEX.128, map 0F38, W = 0.
func vex0F38(text string, opcode byte, pp, vvvv int, rest ...byte) {
	emitBytes(text, append([]byte{0xC4, 0xE2, byte(^vvvv&15)<<3 | byte(pp), opcode}, rest...)...)
}

// Low general registers by their numbers: the tile instructions here use no extension bits.
const (
	regAX, regCX, regDX, regBX = 0, 1, 2, 3
	regSI, regDI               = 6, 7
)

// sibMem is ModRM, SIB and a 32-bit displacement for base + index.
func sibMem(tile, base, index, disp int) []byte {
	return []byte{0x84 | byte(tile)<<3, byte(index)<<3 | byte(base), byte(disp), byte(disp >> 8), byte(disp >> 16), byte(disp >> 24)}
}

func tileLoad(tile, base, index, disp int) {
	vex0F38("TILELOADD", 0x4B, ppF2, 0, sibMem(tile, base, index, disp)...)
}

// tileLoadStreaming is tileLoad with the hint that the lines are not needed in the first-level cache again.
func tileLoadStreaming(tile, base, index, disp int) {
	vex0F38("TILELOADDT1", 0x4B, pp66, 0, sibMem(tile, base, index, disp)...)
}

func tileStore(tile, base, index, disp int) {
	vex0F38("TILESTORED", 0x4B, ppF3, 0, sibMem(tile, base, index, disp)...)
}

func tileZero(tile int) { vex0F38("TILEZERO", 0x49, ppF2, 0, 0xC0|byte(tile)<<3) }

// tileDotBF16 is C += A B: TDPBF16PS c, a, b.
func tileDotBF16(c, a, b int) { vex0F38("TDPBF16PS", 0x5C, ppF3, b, 0xC0|byte(c)<<3|byte(a)) }

// tileDotInt8 is C += A B of signed bytes: TDPBSSD c, a, b.
func tileDotInt8(c, a, b int) { vex0F38("TDPBSSD", 0x5E, ppF2, b, 0xC0|byte(c)<<3|byte(a)) }

// tileConfig loads the configuration at base (LDTILECFG).
func tileConfig(base int) { vex0F38("LDTILECFG", 0x49, ppNone, 0, byte(base)) }

func tileRelease() { vex0F38("TILERELEASE", 0x49, ppNone, 0, 0xC0) }

// prefetchWriteAX asks for the line at AX for writing (PREFETCHW; a CPU without it does nothing).
func prefetchWriteAX() { emitBytes("PREFETCHW (AX)", 0x0F, 0x0D, 0x08) }

// prefetchWriteR8 is the same for the line at R8 + disp, disp below 128.
func prefetchWriteR8(disp int) {
	emitBytes(fmt.Sprintf("PREFETCHW %d(R8)", disp), 0x41, 0x0F, 0x0D, 0x48, byte(disp))
}
