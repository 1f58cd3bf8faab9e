package model

import "terrace/internal/kernels"

// strips are the states of a pass's texts, in strips of the kernels' width: a task takes a strip of a head through all rows of the pass,
// text by text. The state of a head is [n, width], behind first numbers of a text's state.
type strips struct {
	heads, n, width int
	first           int
	states          []StateRows
	lanes           int
	scratch         []float32 // of each worker: a strip, then pads
}

// stripPads are the rows of a strip's width that a task has beside the strip: operands at the edge of a head.
const stripPads = 3

// runStrips runs the strips over the pool: f takes one through the rows of a text.
func (b *native) runStrips(s *strips, f func(s *strip)) {
	s.lanes = kernels.StateLanes()
	size := (s.n + stripPads) * s.lanes
	s.scratch = b.ws.floats(&b.ws.strips, b.pool.Threads()*size)
	each := (s.width + s.lanes - 1) / s.lanes
	grain := 1
	if s.heads >= b.pool.Threads() {
		grain = each // a core that reads a head's rows in part has the rest of them in its cache
	}
	b.pool.RunBy(grain, s.heads*each, func(worker, i int) {
		t := strip{head: i / each, from: i % each * s.lanes, scratch: s.scratch[worker*size:][:size], of: s}
		t.to = min(t.from+s.lanes, s.width)
		for i := range s.states {
			t.text, t.rows = &s.states[i], s.states[i].Rows
			if t.rows == 0 {
				t.carry()
				continue
			}
			t.load()
			f(&t)
			t.store()
			t.row += t.rows
		}
	})
}

// strip is a strip of one text's state of a head: columns [from, to).
type strip struct {
	of        *strips
	text      *StateRows
	head      int
	from, to  int
	row, rows int // the text's of the pass
	scratch   []float32
}

// whole tells whether the strip has as many columns as the kernels take.
func (s *strip) whole() bool { return s.to-s.from == s.of.lanes }

// local is the strip in scratch.
func (s *strip) local() kernels.Strip {
	return kernels.Strip{Data: s.scratch[:s.of.n*s.of.lanes], Stride: s.of.lanes}
}

// in is the strip within a text's state.
func (s *strip) in(state []float32) kernels.Strip {
	o := s.of
	return kernels.Strip{Data: state[o.first+s.head*o.n*o.width:][:o.n*o.width][s.from:], Stride: o.width}
}

// load copies a strip at the edge of a head to scratch, with zeros beside it; a whole one is read where it lies.
func (s *strip) load() {
	if s.whole() {
		return
	}
	l := s.local()
	clear(l.Data)
	s.copy(l, s.in(s.text.From))
}

// store copies such a strip back.
func (s *strip) store() {
	if s.whole() {
		return
	}
	s.copy(s.in(s.text.State), s.local())
}

// carry takes the state through no rows.
func (s *strip) carry() { s.copy(s.in(s.text.State), s.in(s.text.From)) }

func (s *strip) copy(to, from kernels.Strip) {
	for i := range s.of.n {
		copy(to.Data[i*to.Stride:][:s.to-s.from], from.Data[i*from.Stride:])
	}
}

// step is where row r of the text reads the state and where it writes it: the first reads the state before the pass, the last writes the
// one behind it, and between them it lies in scratch, close together.
func (s *strip) step(r int) (to, from kernels.Strip) {
	to, from = s.local(), s.local()
	if !s.whole() {
		return to, from
	}
	if r == 0 {
		from = s.in(s.text.From)
	}
	if r == s.rows-1 {
		to = s.in(s.text.State)
	}
	return to, from
}

// pad is scratch of a strip's width.
func (s *strip) pad(i int) []float32 { return s.scratch[(s.of.n+i)*s.of.lanes:][:s.of.lanes] }

// operand is the strip's part of x, a head's numbers of a row, as wide as the kernels take; pad i holds it at the edge of a head.
func (s *strip) operand(x []float32, i int) []float32 {
	if s.whole() {
		return x[s.from:s.to]
	}
	p := s.pad(i)
	clear(p[copy(p, x[s.from:s.to]):])
	return p
}

// result is where a kernel writes the strip's part of x, and keep puts it there.
func (s *strip) result(x []float32, i int) []float32 {
	if s.whole() {
		return x[s.from:s.to]
	}
	return s.pad(i)
}

func (s *strip) keep(x, result []float32) {
	if !s.whole() {
		copy(x[s.from:s.to], result)
	}
}
