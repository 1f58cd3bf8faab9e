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
				for heads := 1; heads <= 4; heads++ {
					f.score(e, heads)
				}
				for heads := 1; heads <= 4; heads++ {
					f.weigh(e, heads)
				}
			}
		})
	}
}

// walker steps through a slice of slices and knows the next one's address for prefetching.
type walker struct{ list, data, next reg.GPVirtual }

func newWalker(param string) walker {
	w := walker{GP64(), GP64(), GP64()}
	Load(Param(param).Base(), w.list)
	return w
}

// step loads the address of the current slice and that of the next, which is the current one where left is 1.
func (w walker) step(left reg.GPVirtual) {
	MOVQ(at(w.list, 0), w.data)
	LEAQ(at(w.list, 24), w.next)
	CMPQ(left, U8(1))
	CMOVQEQ(w.list, w.next)
	MOVQ(at(w.next, 0), w.next)
	ADDQ(U8(24), w.list)
}

// score emits q·k of all tokens of a list of tiles for a group of heads.
func (f *flavour) score(e element, heads int) {
	f.begin(fmt.Sprintf("Score%sx%d", e.name, heads), "func(s, q []float32, keys [][]byte, masks []uint16, dim int)",
		fmt.Sprintf("Score%sx%d writes q·k to s [%d][16·tiles] for tiles of 16 tokens, [dim][16] each; q is [dim][%d]. "+
			"Tokens whose mask bit is 0 score -Inf. dim is a multiple of 4.", e.name, heads, heads, heads))
	s := Load(Param("s").Base(), GP64())
	q := Load(Param("q").Base(), GP64())
	w := newWalker("keys")
	masks := Load(Param("masks").Base(), GP64())
	left := Load(Param("masks").Len(), GP64()).(reg.GPVirtual)
	dim := Load(Param("dim"), GP64())
	stride, stride3, qd, d := GP64(), GP64(), GP64(), GP64()
	MOVQ(left, stride)
	SHLQ(U8(6), stride)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	low := f.constant(float32(negInf))
	var bits []reg.VecPhysical
	if !f.wide() {
		bits = f.vecs(2)
		VMOVDQU(laneBits(0), bits[0])
		VMOVDQU(laneBits(8), bits[1])
	}
	// Two sums a head: two of the unrolled dimensions (AVX-512) or the two halves of the tile (AVX2).
	var acc [][]reg.VecPhysical
	for range heads {
		acc = append(acc, f.vecs(2))
	}
	k, tmp := f.vecs(2), f.vec()

	TESTQ(left, left)
	JZ(LabelRef("done"))
	Label("tile")
	w.step(left)
	for _, a := range acc {
		f.zero(a[0])
		f.zero(a[1])
	}
	MOVQ(q, qd)
	MOVQ(dim, d)
	Label("dims")
	bytes := 4 * 16 * e.size
	for line := 0; line < bytes; line += 64 {
		PREFETCHT0(at(w.next, line))
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
	ADDQ(U32(bytes), w.next)
	ADDQ(U8(16*heads), qd)
	SUBQ(U8(4), d)
	JNZ(LabelRef("dims"))
	f.storeScores(s, stride, stride3, masks, acc, low, bits, k, tmp)
	ADDQ(U8(64), s)
	ADDQ(U8(2), masks)
	DECQ(left)
	JNZ(LabelRef("tile"))
	Label("done")
	f.end()
}

// storeScores writes the tile's scores of every head, -Inf where the mask has no bit.
func (f *flavour) storeScores(s, stride, stride3, masks reg.Register, acc [][]reg.VecPhysical, low reg.VecPhysical, bits, k []reg.VecPhysical, tmp reg.VecPhysical) {
	head := func(h, disp int) Mem {
		if h == 3 {
			return Mem{Base: s, Index: stride3, Scale: 1, Disp: disp}
		}
		return row(s, stride, h, disp)
	}
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
		VPAND(bits[half], tmp, k[half])
		VPCMPEQD(bits[half], k[half], k[half])
	}
	for h, a := range acc {
		for half := range 2 {
			VBLENDVPS(k[half], a[half], low, a[half])
			VMOVUPS(a[half], head(h, 32*half))
		}
	}
}

// weigh emits out += p·v over a list of tiles for a group of heads.
func (f *flavour) weigh(e element, heads int) {
	f.begin(fmt.Sprintf("Weigh%sx%d", e.name, heads), "func(out, p []float32, values [][]byte, masks []uint16, dim int)",
		fmt.Sprintf("Weigh%sx%d adds p·v to out [%d][dim] for tiles of 16 tokens, [16][dim] each; p is [%d][16·tiles]. "+
			"Tokens whose mask bit is 0 are not read. dim is a multiple of 16.", e.name, heads, heads, heads))
	w := weigher{
		e: e, heads: heads, out: Load(Param("out").Base(), GP64()), p: Load(Param("p").Base(), GP64()),
		masks: Load(Param("masks").Base(), GP64()), data: GP64(), ahead: GP64(), dims: GP64(),
		stride: GP64(), dimBytes: GP64(), size: GP64(), list: AllocLocal(8), left: AllocLocal(8),
	}
	tmp := Load(Param("values").Base(), GP64())
	MOVQ(tmp, w.list)
	Load(Param("masks").Len(), w.stride)
	MOVQ(w.stride, w.left)
	Load(Param("dim"), w.size)
	MOVQ(w.size, w.dimBytes)
	SHLQ(U8(2), w.dimBytes)
	SHLQ(U8(log2(e.size)), w.size)
	SHLQ(U8(6), w.stride)
	if heads == 4 {
		w.stride3, w.dimBytes3 = GP64(), GP64()
		LEAQ(Mem{Base: w.stride, Index: w.stride, Scale: 2}, w.stride3)
		LEAQ(Mem{Base: w.dimBytes, Index: w.dimBytes, Scale: 2}, w.dimBytes3)
	}
	CMPQ(w.left, U8(0))
	JEQ(LabelRef("done"))
	Label("tile")
	w.step()
	sizes := []int{16}
	if f.wide() {
		sizes = []int{64, 16}
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
	e                   element
	heads               int
	out, p, masks       reg.Register
	data, ahead         reg.GPVirtual // the tile's values, and how far the next tile's lie ahead of them
	dims                reg.GPVirtual // dimensions left in this tile
	stride, stride3     reg.GPVirtual // bytes between heads of p, and three times that
	dimBytes, dimBytes3 reg.GPVirtual // bytes between heads of out, and three times that
	size                reg.GPVirtual // bytes between tokens of the page
	list, left          Mem           // where the list of tiles stands, and how many are left
}

// step loads the next tile; the last one is its own next.
func (w *weigher) step() {
	list, next := GP64(), GP64()
	MOVQ(w.list, list)
	MOVQ(at(list, 0), w.data)
	LEAQ(at(list, 24), next)
	MOVQ(next, w.list)
	CMPQ(w.left, U8(1))
	CMOVQEQ(list, next)
	MOVQ(at(next, 0), w.ahead)
	SUBQ(w.data, w.ahead)
	Load(Param("dim"), w.dims)
}

// head is the address of head h in an array of rows.
func (w *weigher) head(base, stride, stride3 reg.Register, h, disp int) Mem {
	if h == 3 {
		return Mem{Base: base, Index: stride3, Scale: 1, Disp: disp}
	}
	return row(base, stride, h, disp)
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
	token := func() {
		for i := range n {
			f.widen(w.e, at(v0, i*f.lanes*w.e.size), v[i])
		}
		for h := range w.heads {
			VBROADCASTSS(w.head(pt, w.stride, w.stride3, h, 0), tmp)
			for i := range n {
				VFMADD231PS(tmp, v[i], acc[h][i])
			}
		}
	}

	Label(label("chunk"))
	CMPQ(w.dims, U8(dims))
	JLT(LabelRef(label("end")))
	for h := range w.heads {
		for i := range n {
			VMOVUPS(w.head(w.out, w.dimBytes, w.dimBytes3, h, i*f.bytes()), acc[h][i])
		}
	}
	CMPW(at(w.masks, 0), I8(-1))
	JNE(LabelRef(label("sparse")))
	MOVQ(w.data, v0)
	MOVQ(w.p, pt)
	MOVQ(U32(16), t)
	Label(label("dense"))
	for line := 0; line < dims*w.e.size; line += 64 {
		PREFETCHT0(Mem{Base: v0, Index: w.ahead, Scale: 1, Disp: line})
	}
	token()
	ADDQ(w.size, v0)
	ADDQ(U8(4), pt)
	DECQ(t)
	JNZ(LabelRef(label("dense")))
	JMP(LabelRef(label("store")))
	w.sparse(label, v0, pt, t, token)

	Label(label("store"))
	for h := range w.heads {
		for i := range n {
			VMOVUPS(acc[h][i], w.head(w.out, w.dimBytes, w.dimBytes3, h, i*f.bytes()))
		}
	}
	ADDQ(U32(4*dims), w.out)
	ADDQ(U32(dims*w.e.size), w.data)
	SUBQ(U8(dims), w.dims)
	JMP(LabelRef(label("chunk")))
	Label(label("end"))
}

// sparse visits the tokens whose mask bit is set.
func (w *weigher) sparse(label func(string) string, v0, pt, t reg.GPVirtual, token func()) {
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
