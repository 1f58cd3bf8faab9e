package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Turning 16 keys that lie wherever they lie into a tile: unpacking inside 16-byte lanes, 8 rows of 2-byte numbers or 4
// of 4-byte ones at a time, so that a lane ends as one dimension of those rows.
func init() {
	for _, make := range flavours {
		f := make()
		register("attn_turn", f.isa, func() {
			f.turnKeys(2)
			f.turnKeys(4)
			f.copyRows()
			f.copyOut()
		})
	}
}

// copyRows: 64-byte stores keep few entries of the store queue busy, so that the loads of dozens of rows, each far from the
// others, wait for memory together. (Prefetch instructions do not help: Zen 4 drops them when its miss buffers are full.)
// Rows of whole 128 bytes, as 64 numbers of 16 bits are, take no branch for each register: with 42 instructions a row a
// processor that looks 256 instructions ahead saw 6 rows, with 17 it sees 15.
func (f *flavour) copyRows() {
	f.begin("CopyRows", "func(dst *byte, rows []*byte, size int)", "CopyRows copies rows of size bytes, a multiple of 16, one after another.")
	dst, rows, n, size := Load(Param("dst"), GP64()), Load(Param("rows").Base(), GP64()), Load(Param("rows").Len(), GP64()), Load(Param("size"), GP64())
	row, left := GP64(), GP64()
	TESTQ(n, n)
	JZ(LabelRef("done"))
	TESTQ(U32(copyBlock-1), size)
	JNZ(LabelRef("row"))
	Label("whole")
	MOVQ(at(rows, 0), row)
	MOVQ(size, left)
	Label("block")
	block := f.vecs(copyBlock / f.bytes())
	for i, v := range block {
		VMOVUPS(at(row, i*f.bytes()), v)
	}
	for i, v := range block {
		VMOVUPS(v, at(dst, i*f.bytes()))
	}
	ADDQ(U32(copyBlock), row)
	ADDQ(U32(copyBlock), dst)
	SUBQ(U32(copyBlock), left)
	JNZ(LabelRef("block"))
	ADDQ(U8(8), rows)
	DECQ(n)
	JNZ(LabelRef("whole"))
	JMP(LabelRef("done"))
	Label("row")
	MOVQ(at(rows, 0), row)
	MOVQ(size, left)
	for bytes := f.bytes(); bytes >= 16; bytes /= 2 {
		v := f.sized(0, 1, bytes)
		label := func(s string) string { return fmt.Sprintf("%s%d", s, bytes) }
		Label(label("chunk"))
		CMPQ(left, U8(bytes))
		JLT(LabelRef(label("end")))
		VMOVUPS(at(row, 0), v[0])
		VMOVUPS(v[0], at(dst, 0))
		ADDQ(U8(bytes), row)
		ADDQ(U8(bytes), dst)
		SUBQ(U8(bytes), left)
		JMP(LabelRef(label("chunk")))
		Label(label("end"))
	}
	ADDQ(U8(8), rows)
	DECQ(n)
	JNZ(LabelRef("row"))
	Label("done")
	f.end()
}

// copyBlock is what copyRows copies without looking, of rows that consist of such blocks.
const copyBlock = 128

// copyOut: stores that go past the caches take no line from the core that read it last, which costs ten times the copy.
func (f *flavour) copyOut() {
	f.begin("CopyOut", "func(dst, src *byte, blocks int)",
		fmt.Sprintf("CopyOut copies blocks of %d bytes past the caches; dst is aligned to 64 bytes.", copyBlock))
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("blocks"), GP64())
	block := f.vecs(copyBlock / f.bytes())
	Label("block")
	for i, v := range block {
		VMOVUPS(at(src, i*f.bytes()), v)
	}
	for i, v := range block {
		VMOVNTPS(v, at(dst, i*f.bytes()))
	}
	ADDQ(U32(copyBlock), src)
	ADDQ(U32(copyBlock), dst)
	DECQ(n)
	JNZ(LabelRef("block"))
	SFENCE()
	f.end()
}

func (f *flavour) turnKeys(size int) {
	f.begin(fmt.Sprintf("TurnKeys%d", size), "func(tile *byte, rows [][]byte, dim int)",
		fmt.Sprintf("TurnKeys%d turns 16 rows of dim numbers of %d bytes into a tile [dim][16]. A row's bytes are a multiple of 16.", size, size))
	together := 16 / size // rows at a time
	rows, tile, left, off := GP64(), GP64(), GP64(), GP64()
	row := make([]reg.GPVirtual, together)
	for i := range row {
		row[i] = GP64()
	}
	Load(Param("rows").Base(), rows)
	for from := 0; from < 16; from += together {
		for i := range row {
			MOVQ(at(rows, 24*(from+i)), row[i])
		}
		Load(Param("tile"), tile)
		Load(Param("dim"), left)
		SHLQ(U8(log2(size)), left)
		XORQ(off, off)
		for bytes := f.bytes(); bytes >= 16; bytes /= 2 {
			label := func(s string) string { return fmt.Sprintf("%s%dx%d", s, from, bytes) }
			Label(label("loop"))
			CMPQ(left, U8(bytes))
			JLT(LabelRef(label("end")))
			in := f.sized(0, together, bytes)
			for i := range row {
				VMOVUPS(Mem{Base: row[i], Index: off, Scale: 1}, in[i])
			}
			out := f.unpack(in, f.sized(together, together, bytes), size)
			for k, v := range out {
				for lane := range bytes / 16 {
					storeLane(v, lane, at(tile, (lane*together+k)*16*size+from*size))
				}
			}
			ADDQ(U8(bytes), off)
			ADDQ(U32(16*bytes), tile)
			SUBQ(U8(bytes), left)
			JMP(LabelRef(label("loop")))
			Label(label("end"))
		}
	}
	f.end()
}

// sized are n registers of so many bytes.
func (f *flavour) sized(from, n, bytes int) []reg.VecPhysical {
	v := make([]reg.VecPhysical, n)
	for i := range v {
		switch r := f.regs[from+i]; bytes {
		case 64:
			v[i] = r.AsZ().(reg.VecPhysical)
		case 32:
			v[i] = r.AsY().(reg.VecPhysical)
		default:
			v[i] = r.AsX().(reg.VecPhysical)
		}
	}
	return v
}

// unpack transposes the lanes of in; both lists are used, and the one that holds the result is returned in order.
func (f *flavour) unpack(in, out []reg.VecPhysical, size int) []reg.VecPhysical {
	n := len(in)
	type op func(ops ...Op)
	low, high := []op{VPUNPCKLWD, VPUNPCKLDQ, VPUNPCKLQDQ}, []op{VPUNPCKHWD, VPUNPCKHDQ, VPUNPCKHQDQ}
	if size == 4 {
		low, high = low[1:], high[1:]
	}
	// After stage s, register g·2^(s+1)+c holds, of the rows of group g, the c-th part of the lane's dimensions.
	for s := range low {
		half := 1 << s
		for g := 0; g < n; g += 2 * half {
			for c := range half {
				a, b := in[g+c], in[g+half+c]
				low[s](b, a, out[g+2*c])
				high[s](b, a, out[g+2*c+1])
			}
		}
		in, out = out, in
	}
	return in
}

func storeLane(v reg.VecPhysical, lane int, m Mem) {
	switch {
	case lane == 0:
		VMOVUPS(v.AsX(), m)
	case v.Size() == 64:
		VEXTRACTF32X4(U8(lane), v, m)
	default:
		VEXTRACTF128(U8(lane), v, m)
	}
}
