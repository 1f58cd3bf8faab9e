package main

import (
	"strconv"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Products with many rows of activations, AVX2. A tile's records are spread into a panel first: whole bytes and float32
// scales, read for every group of 4 rows. A part of a panel's record (there are two where scales are those of 16 columns):
//
//	4 or 8 groups of 4 columns, 64 bytes each, then 16 float32 scales, then (types with minima) 16 float32 minima
const manyRows = 4

// manyFormats are the types whose kernels serve all types: Q4_1 Q4_K too, Q5_1 Q5_K, Q8_0 and NVFP4 all that are multiplied as
// signed bytes, of one part and of two.
var manyFormats = []string{"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q6_K", "NVFP4", "TQ2_0"}

func init() {
	register("matmul_many", "avx2", func() {
		s := newSIMD("avx2")
		for _, f := range formats {
			s.spread(f)
		}
		for _, f := range formats {
			for _, name := range manyFormats {
				if f.name == name {
					s.many(f)
				}
			}
		}
	})
}

// parts is the number of scales of a record of a row.
func (f format) parts() int {
	switch f.scale {
	case "super16", "f16x2", "f32x2":
		return 2
	}
	return 1
}

func (f format) partBytes() int {
	n := 64 * (8/f.parts() + 1)
	if f.min {
		n += 64
	}
	return n
}

// spread emits the unpacking of a tile's records into a panel; first is a multiple of 8. About 90 instructions a record of
// 512 weights.
func (s *simd) spread(f format) {
	name := "Spread" + f.name
	s.function(name, "func(panel *byte, tile *byte, first, records int)",
		name+" writes records first.. of a "+f.name+" tile as bytes and float32 scales.")
	for half := range s.passes() {
		panel := Load(Param("panel"), GP64())
		base := Load(Param("tile"), GP64())
		first := Load(Param("first"), GP64())
		left := Load(Param("records"), GP64())
		s.used = 0
		w := s.vecs(8)
		t0, t1 := s.vec(), s.vec()
		sc := s.scaleRegs(f)
		u := s.unpacker(f, t0, t1)
		s.skipRecords(f, base, first)
		c := s.newCursor(f, base, half)
		s.eachRecord(c, left, strconv.Itoa(half), func() {
			u.emit(c.planes(0), w)
			s.emitScales(c, sc, t0)
			groups := 8 / f.parts()
			for p := range f.parts() {
				at := Mem{Base: panel, Disp: p*f.partBytes() + 32*half}
				for g := range groups {
					VMOVDQU(w[p*groups+g], at.Offset(64*g))
				}
				VMOVUPS(sc.d[p], at.Offset(64*groups))
				if f.min {
					VMOVUPS(sc.m[p], at.Offset(64*groups+64))
				}
			}
			ADDQ(U32(f.parts()*f.partBytes()), panel)
		})
	}
	VZEROUPPER()
	RET()
}

// manyState is the state of a product of a panel with many rows.
type manyState struct {
	s                *simd
	f                format
	dst, stride, tri reg.Register // tri: three times the stride
	at, act          reg.Register // part of the panel, record of the activations
	short, wide      [][]reg.VecPhysical
	w, tmp           []reg.VecPhysical
	x                reg.VecPhysical
	halves           []int // of the tile's rows that are in work together
	part             int
}

// many emits the product of a panel with groups of 4 activation rows, which lie groupBytes apart, added to dst, whose rows
// are strideBytes apart. The sums of both halves of the tile's 16 rows are in work together, so that a broadcast of
// activations is used twice, where their 16-bit sums need not be widened before the scale; else one after the other. Float32
// sums stay in dst, in the order and by the operations of dot. A group of types of 4 bits with minima costs a record of 512
// weights 160 vector operations, 64 of them VPMADDUBSW, 52 loads or broadcasts, and 8 stores.
func (s *simd) many(f format) {
	name := "Many" + f.name
	s.function(name, "func(dst *float32, strideBytes uintptr, panel *byte, act *byte, groupBytes uintptr, records, groups int)",
		name+" adds the product of a panel and groups of 4 activation rows to dst, whose rows are strideBytes apart.")
	m := &manyState{s: s, f: f}
	m.dst = Load(Param("dst"), GP64())
	m.stride = Load(Param("strideBytes"), GP64())
	m.tri = GP64()
	LEAQ(Mem{Base: m.stride, Index: m.stride, Scale: 2}, m.tri)
	actBase := Load(Param("act"), GP64())
	groupBytes := Load(Param("groupBytes"), GP64())
	groups := Load(Param("groups"), GP64())
	panel := Load(Param("panel"), GP64())
	records := Load(Param("records"), GP64())
	m.at, m.act = GP64(), GP64()
	left := GP64()
	m.registers()
	Label("group")
	MOVQ(panel, m.at)
	MOVQ(actBase, m.act)
	MOVQ(records, left)
	Label("record")
	for m.part = range f.parts() {
		for h := 0; h < 2; h += len(m.halves) {
			for i := range m.halves {
				m.halves[i] = h + i
			}
			m.multiply()
			m.finish()
		}
		ADDQ(U32(f.partBytes()), m.at)
	}
	ADDQ(U32(manyRows*actBytes), m.act)
	DECQ(left)
	JNZ(LabelRef("record"))
	ADDQ(groupBytes, actBase)
	LEAQ(Mem{Base: m.dst, Index: m.stride, Scale: 4}, m.dst)
	DECQ(groups)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

func (m *manyState) groups() int { return 8 / m.f.parts() }

// widened says whether 16-bit sums of a part have room to its end.
func (m *manyState) whole() bool { return m.f.signedOn(m.s) || room[m.f.bits] >= m.groups() }

func (m *manyState) registers() {
	s := m.s
	m.halves = make([]int, 1)
	if m.whole() {
		m.halves = make([]int, 2)
	}
	for range m.halves {
		m.wide = append(m.wide, s.vecs(manyRows))
	}
	m.short = m.wide
	if !m.whole() {
		m.short = [][]reg.VecPhysical{s.vecs(manyRows)}
	}
	m.w, m.x, m.tmp = s.vecs(2), s.vec(), s.vecs(3)
}

// multiply sums the products of a part in short and wide.
func (m *manyState) multiply() {
	s := m.s
	signed := m.f.signedOn(s)
	for g := range m.groups() {
		for i, h := range m.halves {
			s.load(Mem{Base: m.at, Disp: 64*g + 32*h}, m.w[i])
			if signed {
				VPABSB(m.w[i], m.tmp[i])
			}
		}
		for t := range manyRows {
			VPBROADCASTD(Mem{Base: m.act, Disp: actQ(manyRows, t, m.part*m.groups()+g)}, m.x)
			for i := range m.halves {
				last := i+1 == len(m.halves)
				if signed {
					m.addSigned(g, t, i)
				} else {
					m.add(g, t, i, last)
				}
			}
		}
		if !signed {
			m.widen(g)
		}
	}
}

// add adds group g's products to the 16-bit sums.
func (m *manyState) add(g, t, i int, last bool) {
	short := m.short[i][t]
	if g%room[m.f.bits] == 0 {
		VPMADDUBSW(m.x, m.w[i], short)
		return
	}
	y := m.x
	if !last {
		y = m.tmp[t%2]
	}
	VPMADDUBSW(m.x, m.w[i], y)
	VPADDW(y, short, short)
}

func (m *manyState) widen(g int) {
	n := room[m.f.bits]
	if g%n < n-1 && g < m.groups()-1 {
		return
	}
	for i := range m.halves {
		for t := range manyRows {
			short, wide := m.short[i][t], m.wide[i][t]
			if g < n {
				VPMADDWD(m.s.wordOnes(), short, wide)
				continue
			}
			VPMADDWD(m.s.wordOnes(), short, short)
			VPADDD(short, wide, wide)
		}
	}
}

// addSigned adds group g's products to the 32-bit sums; |w| is in tmp.
func (m *manyState) addSigned(g, t, i int) {
	wide, y := m.wide[i][t], m.tmp[2]
	VPSIGNB(m.w[i], m.x, y)
	VPMADDUBSW(y, m.tmp[i], y)
	if g == 0 {
		VPMADDWD(m.s.wordOnes(), y, wide)
		return
	}
	VPMADDWD(m.s.wordOnes(), y, y)
	VPADDD(y, wide, wide)
}

// row is the place in dst of row t's sums of half h.
func (m *manyState) row(t, h int) Mem {
	switch t {
	case 1, 2:
		return Mem{Base: m.dst, Index: m.stride, Scale: uint8(t), Disp: 32 * h}
	case 3:
		return Mem{Base: m.dst, Index: m.tri, Scale: 1, Disp: 32 * h}
	}
	return Mem{Base: m.dst, Disp: 32 * h}
}

func (m *manyState) dx(t int) Mem  { return Mem{Base: m.act, Disp: actDX(manyRows, t)} }
func (m *manyState) sum(t int) Mem { return Mem{Base: m.act, Disp: actSum(manyRows, t)} }
func (m *manyState) neg(t int) Mem {
	half := 0
	if m.f.parts() == 2 {
		half = 1 + m.part
	}
	return Mem{Base: m.act, Disp: actNeg(manyRows, t, half)}
}

// finish scales the integer sums of a part and adds them to dst, as dotter.finish does.
func (m *manyState) finish() {
	s := m.s
	scales, minima := m.w, []reg.VecPhysical{m.tmp[0], m.tmp[1]}
	for i, h := range m.halves {
		s.load(Mem{Base: m.at, Disp: 64*m.groups() + 32*h}, scales[i])
		if m.f.min {
			s.load(Mem{Base: m.at, Disp: 64*m.groups() + 64 + 32*h}, minima[i])
		}
	}
	y := m.tmp[2]
	for t := range manyRows {
		if m.f.bias >= 0 && !m.f.signedOn(s) {
			s.broadcastInt(m.neg(t), m.f.bias, y)
			for i := range m.halves {
				VPADDD(y, m.wide[i][t], m.wide[i][t])
			}
		}
		VBROADCASTSS(m.dx(t), m.x)
		for i, h := range m.halves {
			sum := m.wide[i][t]
			VCVTDQ2PS(sum, sum)
			VMULPS(m.x, sum, sum)
			VFMADD213PS(m.row(t, h), scales[i], sum)
		}
		if m.f.min {
			m.minimum(t, y)
		}
		for i, h := range m.halves {
			if m.f.min {
				VFMADD231PS(y, minima[i], m.wide[i][t])
			}
			VMOVUPS(m.wide[i][t], m.row(t, h))
		}
	}
}

// minimum sets y to what the minima of a part multiply; dx is in x.
func (m *manyState) minimum(t int, y reg.VecPhysical) {
	if m.f.parts() == 1 {
		VBROADCASTSS(m.sum(t), y)
		return
	}
	VPBROADCASTD(m.neg(t), y)
	VCVTDQ2PS(y, y)
	VMULPS(m.x, y, y)
}
