package main

import "fmt"

// Integer products of 8-bit queries with tiles of key codes, as attn_codes.go says; with SDOT by element, or with SMULL and
// SADALP of half a tile at a time, where each token's sum is in two lanes until its end.
func init() {
	for _, isa := range []string{"neon", "dotprod"} {
		registerARM("attn_codes", isa, func(f *armFile) {
			for _, bits := range []int{8, 4} {
				for rows := 1; rows <= 4; rows++ {
					f.dotCodes(bits, rows, isa == "dotprod")
				}
			}
		})
	}
}

func (f *armFile) dotCodes(bits, rows int, sdot bool) {
	name := fmt.Sprintf("DotCodes%dx%d", bits, rows)
	a := f.function(name, "func(dst *float32, dstBytes int, q *int8, qBytes int, bias *int32, codes *byte, tiles, groups int, unit, scales *float32, step int)",
		fmt.Sprintf("%s writes q·codes + bias of %d queries, qBytes apart, to rows of dst, dstBytes apart: as int32, or, where there are "+
			"scales, as float32 times the query's unit and the tokens' scales, step bytes a tile further on.", name, rows))
	c := &armCoder{armFunction: a, bits: bits, sdot: sdot, vectors: 2}
	if sdot {
		c.vectors = 4
	}
	for range rows {
		c.q = append(c.q, a.g())
		var low, high []int
		for range c.vectors {
			low = append(low, a.v())
			if !sdot {
				high = append(high, a.v())
			}
		}
		c.sums, c.upper = append(c.sums, low), append(c.upper, high)
	}
	c.at = a.g()
	c.w, c.high, c.x, c.tmp = a.vs(c.vectors), a.vs(c.vectors), a.v(), a.v()
	c.mask, c.y = a.v(), a.v()
	a.i("movi v%d.16b, #15", c.mask)
	left, size, to := a.g(), a.g(), a.g()
	a.i("lsl %s, %s, #6", size, a.arg("groups"))
	a.label("tile")
	for part := range 4 / c.vectors {
		label := fmt.Sprintf("group%d", part)
		for r, q := range c.q {
			if r == 0 {
				a.i("mov %s, %s", q, a.arg("q"))
			} else {
				a.i("add %s, %s, %s", q, c.q[r-1], a.arg("qBytes"))
			}
			for v, sum := range c.sums[r] {
				if sdot {
					c.one(a.arg("bias"), r, sum)
				} else {
					a.zero([]int{sum, c.upper[r][v]})
				}
			}
		}
		a.i("add %s, %s, #%d", c.at, a.arg("codes"), 32*part)
		a.i("mov %s, %s", left, a.arg("groups"))
		a.label(label)
		c.multiply()
		a.i("add %s, %s, #64", c.at, c.at)
		a.i("subs %s, %s, #1", left, left)
		a.i("b.ne @%s", label)
		c.finish(part)
		a.i("mov %s, %s", to, a.arg("dst"))
		for r, row := range c.sums {
			a.store(row, to, 32*part)
			if r+1 < rows {
				a.i("add %s, %s, %s", to, to, a.arg("dstBytes"))
			}
		}
	}
	a.i("add %s, %s, %s", a.arg("codes"), a.arg("codes"), size)
	a.i("add %s, %s, #64", a.arg("dst"), a.arg("dst"))
	a.i("add %s, %s, %s", a.arg("scales"), a.arg("scales"), a.arg("step"))
	a.i("subs %s, %s, #1", a.arg("tiles"), a.arg("tiles"))
	a.i("b.ne @tile")
}

// armCoder holds the registers of one dotCodes.
type armCoder struct {
	*armFunction
	bits        int
	sdot        bool
	vectors     int // of 4 tokens, in work together
	q           []string
	at          string
	sums, upper [][]int // [row][vector]; upper without SDOT
	w, high     []int
	x, y, tmp   int
	mask        int
}

// one fills a register with 32-bit number r behind base.
func (c *armCoder) one(base string, r, to int) {
	c.i("ldr s%d, [%s, #%d]", to, base, 4*r)
	c.i("dup v%d.4s, v%d.s[0]", to, to)
}

// multiply adds the products of a group.
func (c *armCoder) multiply() {
	c.load(c.w, c.at, 0)
	if c.bits == 4 {
		for v, w := range c.w {
			c.i("ushr v%d.16b, v%d.16b, #4", c.high[v], w)
			c.i("and v%d.16b, v%d.16b, v%d.16b", w, w, c.mask)
		}
	}
	for r, q := range c.q {
		if c.bits == 8 {
			c.i("ldr s%d, [%s], #4", c.x, q)
		} else {
			c.i("ldr d%d, [%s], #8", c.x, q)
		}
		if c.sdot {
			for v, sum := range c.sums[r] {
				c.i("sdot v%d.4s, v%d.16b, v%d.4b[0]", sum, c.w[v], c.x)
				if c.bits == 4 {
					c.i("sdot v%d.4s, v%d.16b, v%d.4b[1]", sum, c.high[v], c.x)
				}
			}
			continue
		}
		if c.bits == 4 {
			c.i("dup v%d.4s, v%d.s[1]", c.y, c.x)
		}
		c.i("dup v%d.4s, v%d.s[0]", c.x, c.x)
		for v := range c.w {
			for half, upper := range []string{"", "2"} {
				b := [...]string{"8b", "16b"}[half]
				c.i("smull%s v%d.8h, v%d.%s, v%d.%s", upper, c.tmp, c.w[v], b, c.x, b)
				if c.bits == 4 {
					c.i("smlal%s v%d.8h, v%d.%s, v%d.%s", upper, c.tmp, c.high[v], b, c.y, b)
				}
				c.i("sadalp v%d.4s, v%d.8h", [...]int{c.sums[r][v], c.upper[r][v]}[half], c.tmp)
			}
		}
	}
}

// finish adds the bias where sums did not start from it, and scales where there are scales.
func (c *armCoder) finish(part int) {
	if !c.sdot {
		for r, row := range c.sums {
			c.one(c.where["bias"], r, c.x)
			for v, sum := range row {
				c.i("addp v%d.4s, v%d.4s, v%d.4s", sum, sum, c.upper[r][v])
				c.i("add v%d.4s, v%d.4s, v%d.4s", sum, sum, c.x)
			}
		}
	}
	label := fmt.Sprintf("store%d", part)
	c.i("cbz %s, @%s", c.where["scales"], label)
	c.load(c.w, c.where["scales"], 32*part)
	for r, row := range c.sums {
		c.i("ldr s%d, [%s, #%d]", c.x, c.where["unit"], 4*r)
		for v, sum := range row {
			c.i("scvtf v%d.4s, v%d.4s", sum, sum)
			c.i("fmul v%d.4s, v%d.4s, v%d.s[0]", sum, sum, c.x)
			c.i("fmul v%d.4s, v%d.4s, v%d.4s", sum, sum, c.w[v])
		}
	}
	c.label(label)
}
