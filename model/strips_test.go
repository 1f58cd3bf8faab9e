package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels"
)

// stripsCase is a mixer of random operands over rows of a text, as its strips take it and as its formula says.
type stripsCase struct {
	name            string
	heads, n, width int
	run             func(s *strip, first int) // the rows from first on are those of the pass
	out             []float32
	want            func(state []float64, row, head int) []float64
}

const stripsRows = 9

func randoms(rnd *rand.Rand, n int, size float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rnd.NormFloat64() * size)
	}
	return x
}

func deltaCase(heads, keyHeads, dk, dv int, byChannel bool) *stripsCase {
	rnd := rand.New(rand.NewPCG(uint64(dk), uint64(dv)))
	d := &DeltaNet{KeyHeads: keyHeads, ValueHeads: heads, KeyDim: dk, ValueDim: dv, Kernel: 1, ByChannel: byChannel}
	t := &deltaTask{d: d, byCh: 1, stride: d.channels()}
	if byChannel {
		t.byCh = dk
	}
	t.in, t.beta = randoms(rnd, stripsRows*t.stride, 1), randoms(rnd, stripsRows*heads, 1)
	t.a, t.keys = randoms(rnd, stripsRows*heads*t.byCh, 1), make([]float32, stripsRows*heads*dk)
	t.decay, t.dt, t.out = randoms(rnd, heads*t.byCh, 0.1), randoms(rnd, heads*t.byCh, 1), make([]float32, stripsRows*heads*dv)
	for i, x := range t.decay {
		t.decay[i] = -float32(math.Abs(float64(x)))
	}
	for row := range stripsRows {
		t.prepare(row)
	}
	c := &stripsCase{name: fmt.Sprintf("delta of %d by %d, %t", dk, dv, byChannel), heads: heads, n: dk, width: dv, out: t.out}
	c.run = func(s *strip, first int) {
		s.row += first
		if byChannel {
			t.stripByChannel(s)
		} else {
			t.strip(s)
		}
		s.row -= first
	}
	c.want = func(state []float64, row, h int) []float64 {
		k, q, v, g := t.key(row, h), t.query(row, h), t.value(row, h), t.decays(row, h)
		out := make([]float64, dv)
		for j := range out {
			sum := 0.0
			for i := range dk {
				state[i*dv+j] *= float64(g[i%len(g)])
				sum += state[i*dv+j] * float64(k[i])
			}
			diff := float64(t.beta[row*heads+h]) * (float64(v[j]) - sum)
			for i := range dk {
				state[i*dv+j] += float64(k[i]) * diff
				out[j] += state[i*dv+j] * float64(q[i])
			}
		}
		return out
	}
	return c
}

func ssmCase(heads, groups, n, width int) *stripsCase {
	rnd := rand.New(rand.NewPCG(uint64(n), uint64(width)))
	m := &Mamba2{Heads: heads, HeadDim: width, Groups: groups, State: n, Kernel: 1, DTMax: 2}
	t := &ssmTask{s: m, stride: m.inner() + m.channels() + heads, steps: make([]float32, 2*stripsRows*heads)}
	t.in, t.out = randoms(rnd, stripsRows*t.stride, 1), make([]float32, stripsRows*m.inner())
	t.decay, t.dt, t.d = randoms(rnd, heads, 0.1), randoms(rnd, heads, 1), randoms(rnd, heads, 1)
	for i, x := range t.decay {
		t.decay[i] = -float32(math.Abs(float64(x)))
	}
	for row := range stripsRows {
		t.prepare(row)
	}
	c := &stripsCase{name: fmt.Sprintf("Mamba-2 of %d by %d", n, width), heads: heads, n: n, width: width, out: t.out}
	c.run = func(s *strip, first int) {
		s.row += first
		t.strip(s)
		s.row -= first
	}
	c.want = func(state []float64, row, h int) []float64 {
		in, inner, out := t.in[row*t.stride:], m.inner(), make([]float64, width)
		dt := min(math.Log1p(math.Exp(float64(in[inner+m.channels()+h]+t.dt[h]))), 2)
		for p := range out {
			u := float64(in[inner+h*width+p])
			for i := range n {
				b, c := in[2*inner+h*groups/heads*n+i], in[2*inner+(groups+h*groups/heads)*n+i]
				s := &state[i*width+p]
				*s = *s*math.Exp(dt*float64(t.decay[h])) + dt*u*float64(b)
				out[p] += *s * float64(c)
			}
			out[p] += float64(t.d[h]) * u
		}
		return out
	}
	return c
}

// TestStrips: strips within a head and at its edge compute the formula, and the same bits however the rows are cut into passes and
// whatever else is in them.
func TestStrips(t *testing.T) {
	was := kernels.Path()
	defer func() { _ = kernels.Select(was) }()
	for _, path := range kernels.Available() {
		if err := kernels.Select(path); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*stripsCase{
			deltaCase(4, 2, 128, 128, false), deltaCase(3, 3, 12, 20, false), deltaCase(2, 1, 6, 80, false),
			deltaCase(2, 2, 64, 64, true), deltaCase(2, 2, 8, 12, true), ssmCase(4, 2, 128, 64), ssmCase(3, 1, 16, 10),
		} {
			t.Run(path+"/"+c.name, c.check)
		}
	}
}

func (c *stripsCase) check(t *testing.T) {
	b := &native{pool: kernels.NewPool(2)}
	defer b.pool.Close()
	const before = 5 // numbers of the convolution
	size := before + c.heads*c.n*c.width
	start := randoms(rand.New(rand.NewPCG(5, 6)), size, 0.5)
	pass := func(first, rows int, from, to []float32) {
		s := &strips{heads: c.heads, n: c.n, width: c.width, first: before, states: []StateRows{{Rows: rows, From: from, State: to}}}
		b.runStrips(s, func(s *strip) { c.run(s, first) })
	}
	whole := make([]float32, size)
	pass(0, stripsRows, start, whole)
	out := slices.Clone(c.out)

	want := make([]float64, size)
	for i, x := range start {
		want[i] = float64(x)
	}
	near := func(what string, got float32, want float64) {
		if !(math.Abs(float64(got)-want) <= 2e-5*(1+math.Abs(want))) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	for row := range stripsRows {
		for h := range c.heads {
			for j, w := range c.want(want[before+h*c.n*c.width:][:c.n*c.width], row, h) {
				near(fmt.Sprintf("row %d, head %d, number %d", row, h, j), out[(row*c.heads+h)*c.width+j], w)
			}
		}
	}
	for i := before; i < size; i++ {
		near(fmt.Sprintf("state %d", i), whole[i], want[i])
	}

	for _, cut := range []int{1, 2, 4} {
		clear(c.out)
		from, to := slices.Clone(start), make([]float32, size)
		for first := 0; first < stripsRows; first += cut {
			pass(first, min(cut, stripsRows-first), from, to)
			copy(from, to)
		}
		if !slices.Equal(c.out, out) || !slices.Equal(to[before:], whole[before:]) {
			t.Errorf("passes of %d rows give other bits than one of all", cut)
		}
	}
	clear(c.out) // rows of three texts in one pass, the first without any, the last in place
	place, other, none := slices.Clone(whole), make([]float32, size), make([]float32, size)
	pass(0, 4, start, place)
	one := slices.Clone(place)
	s := &strips{heads: c.heads, n: c.n, width: c.width, first: before, states: []StateRows{{Rows: 0, From: start, State: none}, {Rows: 4, From: start, State: other}, {Rows: 5, From: place, State: place}}}
	b.runStrips(s, func(s *strip) { c.run(s, 0) })
	if !slices.Equal(none[before:], start[before:]) || !slices.Equal(other[before:], one[before:]) || !slices.Equal(c.out, out) || !slices.Equal(place[before:], whole[before:]) {
		t.Error("texts beside each other give other bits than alone")
	}
}
