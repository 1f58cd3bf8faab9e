package model

import (
	"gorgonia.org/tensor"

	"terrace/internal/kernels"
)

// floats is the row-major float32 backing of a tensor.
func floats(t *tensor.Dense) []float32 { return t.Float32s() }

// slot is one named piece of scratch: a float32 buffer that grows, and its tensor for the last shape asked for.
type slot struct {
	data []float32
	t    *tensor.Dense
}

// scratch holds the activations of a pass; steady-state decoding allocates nothing.
type scratch struct {
	hidden, normed, q, k, v, attended, block, logits slot
	gate, up, row, guess, guessNormed, router        slot
	narrow                                           slot // rows of narrower embeddings
}

// floats returns n elements of a slot.
func (s *scratch) floats(b *slot, n int) []float32 {
	if cap(b.data) < n {
		b.data = make([]float32, n)
	}
	return b.data[:n]
}

// dense returns a slot as a tensor [n, cols].
func (s *scratch) dense(b *slot, n, cols int) *tensor.Dense {
	if b.t != nil && cap(b.data) >= n*cols {
		if sh := b.t.Shape(); sh[0] == n && sh[1] == cols && len(floats(b.t)) == n*cols {
			return b.t
		}
	}
	b.t = tensor.New(tensor.WithShape(n, cols), tensor.WithBacking(s.floats(b, n*cols)))
	return b.t
}

// product is one output of a matmul.
type product struct {
	w   *Linear
	dst []float32 // [n, w.Rows]
}

// matmul computes every product of x [n, cols], quantising x once, and adds the biases.
func (b *native) matmul(ph kernels.Phase, x []float32, n int, products ...product) error {
	ps, biases := &b.products, &b.biases
	for i, p := range products {
		w, bias, err := p.w.Matrix()
		if err != nil {
			return err
		}
		ps[i], biases[i] = kernels.Product{W: w, Dst: p.dst}, bias
	}
	b.pool.MatMul(ph, x, n, ps[:len(products)]...)
	for i, p := range products {
		if biases[i] == nil {
			continue
		}
		for r := range n {
			kernels.Add(p.dst[r*p.w.Rows:(r+1)*p.w.Rows], biases[i])
		}
	}
	return nil
}

// rowTask is the operand set of the work that is shared out by rows: norms and rotations. The functions are built once, so
// that a call allocates nothing.
type rowTask struct {
	dst, x, w, bias []float32
	rows, width     int
	eps             float32
	kind            NormKind
	perTask         int
	normRows        func(worker, i int)

	tables         []*ropeTable // one a row
	pos            []int32
	heads, dim     int
	interlaced     bool
	rot            int
	headNorm       []float32
	wholeRowNorm   bool
	turnRows       func(worker, i int)
	act            Activation
	gate, up       []float32
	activationRows func(worker, i int)
}

// maxRowsPerTask keeps the tasks of a prompt large enough that handing them over costs little; few rows (batched decode)
// are shared out one by one.
const maxRowsPerTask = 8

// tasks sets how many rows a task takes and returns the number of tasks for n rows.
func (t *rowTask) tasks(n int) int {
	t.perTask = min(maxRowsPerTask, max(1, n/8))
	return (n + t.perTask - 1) / t.perTask
}

func (t *rowTask) init(b *native) {
	t.normRows = func(_, i int) {
		for r := i * t.perTask; r < min((i+1)*t.perTask, t.rows); r++ {
			dst, x := t.dst[r*t.width:(r+1)*t.width], t.x[r*t.width:(r+1)*t.width]
			if t.kind == LayerNorm {
				kernels.LayerNorm(dst, x, t.w, t.bias, t.eps)
			} else {
				kernels.RMSNorm(dst, x, t.w, t.eps)
			}
		}
	}
	t.turnRows = func(_, i int) {
		for r := i * t.perTask; r < min((i+1)*t.perTask, t.rows); r++ {
			t.turnRow(r)
		}
	}
	t.activationRows = func(_, i int) {
		lo := i * t.perTask * t.width
		hi := min(lo+t.perTask*t.width, t.rows*t.width)
		activate(t.act, t.dst[lo:hi], t.gate, t.up[lo:hi], lo, hi)
	}
}

// norm writes the normalised rows of x [n, width] to dst (which may be x).
func (b *native) norm(dst, x []float32, n, width int, p NormParams) error {
	w, err := p.W.Values()
	if err != nil {
		return err
	}
	bias, err := p.B.Values()
	if err != nil {
		return err
	}
	t := &b.rows
	t.dst, t.x, t.w, t.bias, t.rows, t.width, t.eps, t.kind = dst, x, w, bias, n, width, b.m.NormEps, b.m.Norm
	b.pool.Run(t.tasks(n), t.normRows)
	return nil
}

// turn applies the per-head norm (where the model has one) and the rotation to rows x [n, heads·dk].
func (b *native) turn(p *Pass, layer int, x []float32, heads int, norm NormParams) error {
	m, t := b.m, &b.rows
	w, err := norm.W.Values()
	if err != nil {
		return err
	}
	index := m.Layer[layer].Rope
	if len(m.Ropes) == 0 || index < 0 {
		index = -1
	}
	if w == nil && index < 0 && !m.LogN {
		return nil
	}
	t.dst, t.rows, t.heads, t.dim, t.pos = x, len(p.Pos), heads, m.KeyDim, p.Pos
	t.headNorm, t.eps, t.wholeRowNorm = w, m.NormEps, len(w) == heads*m.KeyDim && heads > 1
	t.tables = t.tables[:0]
	if index >= 0 {
		t.rot, t.interlaced = m.Ropes[index].Dim, m.Ropes[index].Interlaced
		for i, pos := range p.Pos {
			table := b.table(index, p, i)
			table.row(int(pos)) // grow here: the tasks below only read
			t.tables = append(t.tables, table)
		}
	}
	b.pool.Run(t.tasks(t.rows), t.turnRows)
	return nil
}

// table returns the rotary table of a row: one for all lengths, but where the angles depend on the sequence's length.
func (b *native) table(index int, p *Pass, row int) *ropeTable {
	rope := &b.m.Ropes[index]
	if !rope.DependsOnLength() {
		return &b.rope[index]
	}
	length := int(p.Pos[row]) + 1
	if p.Len != nil {
		length = int(p.Len[row])
	}
	switch {
	case rope.LongFreq != nil && length > rope.LongAt:
		length = rope.LongAt + 1
	case rope.LongFreq != nil || length <= rope.DynamicAt:
		length = 0
	}
	key := [2]int{index, length}
	if b.ropeAt[key] == nil {
		if len(b.ropeAt) > 64 {
			clear(b.ropeAt)
		}
		b.ropeAt[key] = &ropeTable{rope: rope, length: length}
	}
	return b.ropeAt[key]
}

func (t *rowTask) turnRow(r int) {
	width := t.heads * t.dim
	x := t.dst[r*width : (r+1)*width]
	switch {
	case t.wholeRowNorm:
		kernels.RMSNorm(x, x, t.headNorm, t.eps)
	case t.headNorm != nil:
		for h := range t.heads {
			kernels.RMSNorm(x[h*t.dim:(h+1)*t.dim], x[h*t.dim:(h+1)*t.dim], t.headNorm, t.eps)
		}
	}
	if len(t.tables) == 0 {
		return
	}
	cos, sin := t.tables[r].row(int(t.pos[r]))
	if t.interlaced {
		kernels.RopeNorm(x, t.heads, t.dim, t.rot, cos, sin)
	} else {
		kernels.RopeNeox(x, t.heads, t.dim, t.rot, cos, sin)
	}
}

// activate writes act(gate)·up (gated) or act(up) (dst is up) to dst; lo and hi are the range of the flat arrays.
func activate(act Activation, dst, gate, up []float32, lo, hi int) {
	if gate == nil {
		switch act {
		case GELUTanh:
			kernels.Gelu(dst)
		case GELU:
			kernels.GeluErf(dst)
		case ReLU:
			kernels.ReLU(dst)
		}
		return
	}
	g := gate[lo:hi]
	switch act {
	case SiLU:
		kernels.SiluMul(dst, g, up)
	case GELUTanh:
		kernels.GeluMul(dst, g, up)
	case GELU:
		kernels.GeluErfMul(dst, g, up)
	case ReLU:
		kernels.ReLU(g)
		kernels.Mul(dst, g)
	}
}
