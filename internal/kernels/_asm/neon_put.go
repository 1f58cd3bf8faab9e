package main

import "fmt"

func init() {
	registerARM("attn_put", "neon", func(f *armFile) {
		for _, e := range elements {
			f.putKeys(e)
			f.putKey(e)
			f.putValue(e)
		}
	})
}

// armNarrower is attn_put.go's narrower.
type armNarrower struct {
	a                *armFunction
	e                element
	half, one, quiet int
	t, mask          int
}

func (a *armFunction) newNarrower(e element) *armNarrower {
	n := &armNarrower{a: a, e: e}
	if e.name == "BF16" {
		n.half, n.one, n.quiet, n.t, n.mask = a.v(), a.v(), a.v(), a.v(), a.v()
		a.word(0x7fff, n.half)
		a.word(1, n.one)
		a.word(0x400000, n.quiet)
	}
	return n
}

// narrow rounds 16 numbers to the type, to nearest with ties to even, and returns the registers that hold them.
func (n *armNarrower) narrow(v []int) []int {
	a := n.a
	switch n.e.name {
	case "F32":
		return v
	case "F16":
		for i := 0; i < 4; i += 2 {
			a.i("fcvtn v%d.4h, v%d.4s", v[i], v[i])
			a.i("fcvtn2 v%d.8h, v%d.4s", v[i], v[i+1])
		}
	case "BF16":
		for i, r := range v {
			a.i("ushr v%d.4s, v%d.4s, #16", n.t, r)
			a.i("and v%d.16b, v%d.16b, v%d.16b", n.t, n.t, n.one)
			a.i("add v%d.4s, v%d.4s, v%d.4s", n.t, n.t, n.half)
			a.i("add v%d.4s, v%d.4s, v%d.4s", n.t, n.t, r)
			a.i("fcmeq v%d.4s, v%d.4s, v%d.4s", n.mask, r, r)
			a.i("orr v%d.16b, v%d.16b, v%d.16b", r, r, n.quiet)
			a.i("bsl v%d.16b, v%d.16b, v%d.16b", n.mask, n.t, r)
			if i%2 == 0 {
				a.i("shrn v%d.4h, v%d.4s, #16", r, n.mask)
			} else {
				a.i("shrn2 v%d.8h, v%d.4s, #16", v[i-1], n.mask)
			}
		}
	}
	return []int{v[0], v[2]}
}

// putKeys turns four rows by four dimensions at a time.
func (f *armFile) putKeys(e element) {
	a := f.function("PutKeys"+e.name, "func(tile *byte, k *float32, strideBytes, dim int)",
		fmt.Sprintf("PutKeys%s turns 16 rows of keys, strideBytes apart, into a tile [dim][16]; dim is a multiple of 4 and not 0.", e.name))
	rows := []string{a.arg("k")}
	for i := range 15 {
		rows = append(rows, a.g())
		a.i("add %s, %s, %s", rows[i+1], rows[i], a.arg("strideBytes"))
	}
	out, v, t := make([][]int, 4), a.vs(4), a.vs(4) // out: of each dimension the 16 numbers
	for d := range out {
		out[d] = a.vs(4)
	}
	n := a.newNarrower(e)
	a.label("loop")
	for g := range 4 {
		for i, r := range v {
			a.i("ldr q%d, [%s], #16", r, rows[4*g+i])
		}
		for i := range 4 { // pairs of rows, even dimensions and odd ones
			a.i("trn%d v%d.4s, v%d.4s, v%d.4s", 1+i%2, t[i], v[i/2*2], v[i/2*2+1])
		}
		for d := range out {
			a.i("trn%d v%d.2d, v%d.2d, v%d.2d", 1+d/2, out[d][g], t[d%2], t[2+d%2])
		}
	}
	for _, numbers := range out {
		a.storeNext(n.narrow(numbers), a.arg("tile"))
	}
	a.i("subs %s, %s, #4", a.arg("dim"), a.arg("dim"))
	a.i("b.ne @loop")
}

func (f *armFile) putKey(e element) {
	a := f.function("PutKey"+e.name, "func(cell *byte, k *float32, dim int)",
		fmt.Sprintf("PutKey%s writes one key of dim numbers, a multiple of 16, to a tile [dim][16] from its cell in the first row on.", e.name))
	step, v := a.g(), a.vs(4)
	n := a.newNarrower(e)
	a.i("mov %s, #%d", step, 16*e.size)
	a.label("loop")
	a.loadNext(v, a.arg("k"))
	for _, r := range n.narrow(v) {
		for i := range 16 / e.size {
			a.i("st1 {v%d.%s}[%d], [%s], %s", r, map[int]string{2: "h", 4: "s"}[e.size], i, a.arg("cell"), step)
		}
	}
	a.i("subs %s, %s, #16", a.arg("dim"), a.arg("dim"))
	a.i("b.ne @loop")
}

func (f *armFile) putValue(e element) {
	a := f.function("PutValue"+e.name, "func(row *byte, v *float32, dim int)",
		fmt.Sprintf("PutValue%s rounds one value, dim numbers, a multiple of 16.", e.name))
	v := a.vs(4)
	n := a.newNarrower(e)
	a.label("loop")
	a.loadNext(v, a.arg("v"))
	a.storeNext(n.narrow(v), a.arg("row"))
	a.i("subs %s, %s, #16", a.arg("dim"), a.arg("dim"))
	a.i("b.ne @loop")
}
