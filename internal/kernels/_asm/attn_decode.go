package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	for _, make := range flavours {
		f := make()
		register("attn_decode", f.isa, func() {
			for _, e := range elements {
				for heads := 1; heads <= f.decodeHeads(); heads++ {
					f.score(e, heads)
				}
				for heads := 1; heads <= f.decodeHeads(); heads++ {
					f.weigh(e, heads)
				}
			}
		})
	}
}

// decodeHeads is the most heads a pass: on AVX2 two sums of each of six, two registers of the tile and a factor are 15 of 16 registers,
// and 12 products a step keep both multipliers busy for the 4 cycles that a sum takes. AVX-512's have not been written.
func (f *flavour) decodeHeads() int {
	if f.wide() {
		return 4
	}
	return 6
}

// walker steps through a slice of slices, and through one of those that are to be fetched into the cache meanwhile: it knows how far
// from the current one the latter lies.
type walker struct {
	data, ahead            reg.GPVirtual
	list, left, next, more Mem // on the stack: where the lists stand, and how many are left
}

// newWalker takes the list's parameter and leaves the count in a register.
func newWalker(param string, count reg.Register) walker {
	w := walker{GP64(), GP64(), AllocLocal(8), AllocLocal(8), AllocLocal(8), AllocLocal(8)}
	tmp := Load(Param(param).Base(), GP64())
	MOVQ(tmp, w.list)
	Load(Param("next").Base(), tmp)
	MOVQ(tmp, w.next)
	Load(Param("next").Len(), tmp)
	MOVQ(tmp, w.more)
	Load(Param("masks").Len(), count)
	MOVQ(count, w.left)
	return w
}

// step loads the address of the current slice and the distance to the one to fetch, 0 once there is none more.
func (w walker) step() {
	list, next := GP64(), GP64()
	MOVQ(w.list, list)
	MOVQ(at(list, 0), w.data)
	MOVQ(w.next, next)
	ADDQ(U8(24), w.next)
	CMPQ(w.more, U8(0))
	CMOVQLE(list, next)
	MOVQ(at(next, 0), w.ahead)
	SUBQ(w.data, w.ahead)
	DECQ(w.more)
	ADDQ(U8(24), list)
	MOVQ(list, w.list)
}

// score emits q·k of all tokens of a list of tiles for a group of heads.
func (f *flavour) score(e element, heads int) {
	f.begin(fmt.Sprintf("Score%sx%d", e.name, heads), "func(s, q []float32, keys [][]byte, masks []uint16, dim int, next [][]byte)",
		fmt.Sprintf("Score%sx%d writes q·k to s [%d][16·tiles] for tiles of 16 tokens, [dim][16] each; q is [dim][%d]. "+
			"Tokens whose mask bit is 0 score -Inf. dim is a multiple of 4. While it computes a tile, one of next is fetched.", e.name, heads, heads, heads))
	s := Load(Param("s").Base(), GP64())
	q := Load(Param("q").Base(), GP64())
	masks := Load(Param("masks").Base(), GP64())
	stride, stride3, qd, d := GP64(), GP64(), GP64(), GP64()
	w := newWalker("keys", stride)
	SHLQ(U8(6), stride)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	var low reg.VecPhysical
	if f.wide() {
		low = f.constant(float32(negInf))
	}
	// Two sums a head: two of the unrolled dimensions (AVX-512) or the two halves of the tile (AVX2).
	var acc [][]reg.VecPhysical
	for range heads {
		acc = append(acc, f.vecs(2))
	}
	k, tmp := f.vecs(2), f.vec()

	CMPQ(w.left, U8(0))
	JEQ(LabelRef("done"))
	Label("tile")
	w.step()
	for _, a := range acc {
		f.zero(a[0])
		f.zero(a[1])
	}
	MOVQ(q, qd)
	Load(Param("dim"), d)
	Label("dims")
	bytes := 4 * 16 * e.size
	for line := 0; line < bytes; line += 64 {
		PREFETCHT1(Mem{Base: w.data, Index: w.ahead, Scale: 1, Disp: line})
	}
	for u := range 4 {
		if f.wide() {
			f.widen(e, at(w.data, u*16*e.size), k[u%2])
			for h := range heads {
				f.fma(at(qd, 4*(u*heads+h)), k[u%2], acc[h][u%2], tmp)
			}
			continue
		}
		f.widen(e, at(w.data, u*16*e.size), k[0])
		f.widen(e, at(w.data, (u*16+8)*e.size), k[1])
		for h := range heads {
			VBROADCASTSS(at(qd, 4*(u*heads+h)), tmp)
			VFMADD231PS(tmp, k[0], acc[h][0])
			VFMADD231PS(tmp, k[1], acc[h][1])
		}
	}
	ADDQ(U32(bytes), w.data)
	ADDQ(U8(16*heads), qd)
	SUBQ(U8(4), d)
	JNZ(LabelRef("dims"))
	f.storeScores(s, stride, stride3, masks, acc, low, k, tmp)
	ADDQ(U8(64), s)
	ADDQ(U8(2), masks)
	DECQ(w.left)
	JNZ(LabelRef("tile"))
	Label("done")
	f.end()
}

// storeScores writes the tile's scores of every head, -Inf where the mask has no bit; k and tmp are clobbered on AVX2.
func (f *flavour) storeScores(s, stride, stride3, masks reg.Register, acc [][]reg.VecPhysical, low reg.VecPhysical, k []reg.VecPhysical, tmp reg.VecPhysical) {
	sixth := sixthHead(len(acc), s, stride, stride3, nil)
	head := func(h, disp int) Mem { return headAt(s, stride, stride3, sixth, h, disp) }
	if f.wide() {
		KMOVW(at(masks, 0), reg.K1)
		for h, a := range acc {
			VADDPS(a[1], a[0], a[0])
			VBLENDMPS(a[0], low, reg.K1, a[0])
			VMOVUPS(a[0], head(h, 0))
		}
		return
	}
	VPBROADCASTW(at(masks, 0), tmp)
	for half := range 2 {
		VPAND(laneBits(8*half), tmp, k[half])
		VPCMPEQD(laneBits(8*half), k[half], k[half])
	}
	VBROADCASTSS(floatConst(float32(negInf)), tmp)
	for h, a := range acc {
		for half := range 2 {
			VBLENDVPS(k[half], a[half], tmp, a[half])
			VMOVUPS(a[half], head(h, 32*half))
		}
	}
}

// weigh emits out += p·v over a list of tiles for a group of heads.
func (f *flavour) weigh(e element, heads int) {
	f.begin(fmt.Sprintf("Weigh%sx%d", e.name, heads), "func(out, p []float32, values [][]byte, masks []uint16, dim int, next [][]byte)",
		fmt.Sprintf("Weigh%sx%d adds p·v to out [%d][dim] for tiles of 16 tokens, [16][dim] each; p is [%d][16·tiles]. "+
			"Tokens whose mask bit is 0 are not read. dim is a multiple of 16. While it computes a tile, one of next is fetched.", e.name, heads, heads, heads))
	w := weigher{
		e: e, heads: heads, out: Load(Param("out").Base(), GP64()), p: Load(Param("p").Base(), GP64()),
		masks: Load(Param("masks").Base(), GP64()), stride: GP64(), dimBytes: GP64(), dims: AllocLocal(8), size: AllocLocal(8),
	}
	w.walker = newWalker("values", w.stride)
	w.rowSize()
	Load(Param("dim"), w.dimBytes)
	SHLQ(U8(2), w.dimBytes)
	SHLQ(U8(6), w.stride)
	if heads >= 4 {
		w.stride3, w.dimBytes3 = GP64(), GP64()
		LEAQ(Mem{Base: w.stride, Index: w.stride, Scale: 2}, w.stride3)
		LEAQ(Mem{Base: w.dimBytes, Index: w.dimBytes, Scale: 2}, w.dimBytes3)
	}
	CMPQ(w.left, U8(0))
	JEQ(LabelRef("done"))
	Label("tile")
	w.step()
	w.startDims()
	if e.quantised() {
		w.startQuantised()
	}
	sizes := []int{16}
	if f.wide() {
		sizes = []int{64, 16}
	}
	if e.name == "I4" {
		sizes[1] = 32
	}
	for _, dims := range sizes {
		f.weighChunk(w, dims)
	}
	SUBQ(w.dimBytes, w.out)
	ADDQ(U8(64), w.p)
	ADDQ(U8(2), w.masks)
	DECQ(w.left)
	JNZ(LabelRef("tile"))
	Label("done")
	f.end()
}

// weigher holds the registers of weigh.
type weigher struct {
	walker
	e                   element
	heads               int
	out, p, masks       reg.Register
	dims                Mem           // dimensions left in this tile
	stride, stride3     reg.GPVirtual // bytes between heads of p, and three times that
	dimBytes, dimBytes3 reg.GPVirtual // bytes between heads of out, and three times that
	size                Mem           // bytes between tokens of the page
	code, scales        reg.GPVirtual // of quantised types: where the chunk's codes and scales lie in a row
}

// headAt is the address of head h in an array of rows: stride3 is three times the stride, sixth the address of head 5.
func headAt(base, stride, stride3, sixth reg.Register, h, disp int) Mem {
	switch h {
	case 3:
		return Mem{Base: base, Index: stride3, Scale: 1, Disp: disp}
	case 4:
		return Mem{Base: base, Index: stride, Scale: 4, Disp: disp}
	case 5:
		return at(sixth, disp)
	}
	return row(base, stride, h, disp)
}

// sixthHead leaves the address of head 5, where there is one, in a register: free, or a new one.
func sixthHead(heads int, base, stride, stride3, free reg.Register) reg.Register {
	if heads < 6 {
		return nil
	}
	if free == nil {
		free = GP64()
	}
	LEAQ(Mem{Base: base, Index: stride, Scale: 2}, free)
	ADDQ(stride3, free)
	return free
}

// weighChunk adds the tile's tokens to dims dimensions of out, as long as that many are left, and moves out and the
// data pointer on.
func (f *flavour) weighChunk(w weigher, dims int) {
	f.next = 0
	n := dims / f.lanes
	label := func(s string) string { return fmt.Sprintf("%s%d", s, dims) }
	var acc [][]reg.VecPhysical
	for range w.heads {
		acc = append(acc, f.vecs(n))
	}
	v, tmp := f.vecs(n), f.vec()
	v0, pt, t := GP64(), GP64(), GP64()
	var sixth reg.Register // head 5 of pt
	if w.heads > 5 {
		sixth = GP64()
	}
	token := func() {
		f.widenValue(w, v0, v)
		for h := range w.heads {
			VBROADCASTSS(headAt(pt, w.stride, w.stride3, sixth, h, 0), tmp)
			for i := range n {
				VFMADD231PS(tmp, v[i], acc[h][i])
			}
		}
	}

	Label(label("chunk"))
	CMPQ(w.dims, U8(dims))
	JLT(LabelRef(label("end")))
	sixthHead(w.heads, w.out, w.dimBytes, w.dimBytes3, t)
	for h := range w.heads {
		for i := range n {
			VMOVUPS(headAt(w.out, w.dimBytes, w.dimBytes3, t, h, i*f.bytes()), acc[h][i])
		}
	}
	CMPW(at(w.masks, 0), I8(-1))
	JNE(LabelRef(label("sparse")))
	MOVQ(w.data, v0)
	MOVQ(w.p, pt)
	sixthHead(w.heads, pt, w.stride, w.stride3, sixth)
	MOVQ(U32(16), t)
	Label(label("dense"))
	for line := 0; line < dims*w.e.bits/8; line += 64 {
		PREFETCHT1(Mem{Base: v0, Index: w.ahead, Scale: 1, Disp: line})
	}
	token()
	ADDQ(w.size, v0)
	ADDQ(U8(4), pt)
	if sixth != nil {
		ADDQ(U8(4), sixth)
	}
	DECQ(t)
	JNZ(LabelRef(label("dense")))
	JMP(LabelRef(label("store")))
	w.sparse(label, v0, pt, t, sixth, token)

	Label(label("store"))
	sixthHead(w.heads, w.out, w.dimBytes, w.dimBytes3, t)
	for h := range w.heads {
		for i := range n {
			VMOVUPS(acc[h][i], headAt(w.out, w.dimBytes, w.dimBytes3, t, h, i*f.bytes()))
		}
	}
	ADDQ(U32(4*dims), w.out)
	w.advance(dims)
	SUBQ(U8(dims), w.dims)
	JMP(LabelRef(label("chunk")))
	Label(label("end"))
}

// widenValue loads len(v) registers of a token's value from the chunk's first dimension on.
func (f *flavour) widenValue(w weigher, v0 reg.Register, v []reg.VecPhysical) {
	if w.e.quantised() {
		f.widenQuantised(w, v0, v)
		return
	}
	for i := range v {
		f.widen(w.e, at(v0, i*f.lanes*w.e.size), v[i])
	}
}

// advance moves on to the next chunk of dimensions.
func (w *weigher) advance(dims int) {
	if w.e.quantised() {
		ADDQ(U8(dims*w.e.bits/8), w.code)
		if dims == 64 { // a whole group; what is left of a row is one group
			ADDQ(U8(16/w.e.bits), w.scales) // int8: a scale; int4: a scale and a minimum
		}
		return
	}
	ADDQ(U32(dims*w.e.size), w.data)
}

// startDims sets the dimensions left to all of them.
func (w *weigher) startDims() {
	dim := Load(Param("dim"), GP64())
	MOVQ(dim, w.dims)
}

// rowSize computes the bytes of a page's row.
func (w *weigher) rowSize() {
	size := Load(Param("dim"), GP64())
	if w.e.quantised() {
		w.code, w.scales = GP64(), GP64()
		w.quantisedRowSize(size)
	} else {
		SHLQ(U8(log2(w.e.size)), size)
	}
	MOVQ(size, w.size)
}

// sparse visits the tokens whose mask bit is set.
func (w *weigher) sparse(label func(string) string, v0, pt, t reg.GPVirtual, sixth reg.Register, token func()) {
	mask := GP64()
	Label(label("sparse"))
	MOVWQZX(at(w.masks, 0), mask)
	Label(label("bit"))
	TESTQ(mask, mask)
	JZ(LabelRef(label("store")))
	TZCNTQ(mask, t)
	LEAQ(at(mask, -1), v0)
	ANDQ(v0, mask)
	LEAQ(Mem{Base: w.p, Index: t, Scale: 4}, pt)
	sixthHead(w.heads, pt, w.stride, w.stride3, sixth)
	IMULQ(w.size, t)
	LEAQ(Mem{Base: w.data, Index: t, Scale: 1}, v0)
	token()
	JMP(LabelRef(label("bit")))
}

func log2(n int) int {
	k := 0
	for n > 1 {
		n /= 2
		k++
	}
	return k
}
