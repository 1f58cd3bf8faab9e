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
	hidden, normed, q, k, v, attended, block, logits   slot
	gate, up, row, guess, guessNormed, router          slot
	beside, shared, sharedGate                         slot // of networks beside attention and beside experts
	latentIn, latentOut                                slot // of experts
	narrow                                             slot // rows of narrower embeddings
	wide, stream, predicted, modes                     slot // rows of more than the residual, and what of them a layer works on
	perLayer, tokenRow, laurel                         slot
	copies, copyLow, copyGates, copyIn, copyRows       slot // of several copies of the residual
	ngrams, ngramUp, ngramConv                         slot
	latent, keyLatent, queries, heads, values, outGate slot // of latent attention, and of gates
	wideQ, wideK, wideGuess                            slot // with room for an index
	index, indexKeys, indexWeights                     slot // of trained indexers
	mixed, mixIn, mixGate, mixA, mixB                  slot // of recurrent mixers
	mixKeys, strips                                    slot
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
	add bool      // to what dst holds
}

// matmul computes every product of x [n, cols], quantising x once, and adds the biases. One product at most has add.
func (b *native) matmul(ph arithmetic, x []float32, n int, products ...product) error {
	return b.matmulNormed(ph, x, n, NormParams{}, products...)
}

// matmulNormed is matmul of x after a norm, where there is one; x itself does not change.
func (b *native) matmulNormed(ph arithmetic, x []float32, n int, norm NormParams, products ...product) error {
	for _, p := range products {
		if ph.parts(n, p.w) {
			return b.matmulParts(ph, x, n, norm, products)
		}
	}
	ps, biases := &b.products, &b.biases
	if b.m.Inputs != nil {
		var err error
		if x, err = b.normed(x, n, norm); err != nil {
			return err
		}
		if norm, err = (NormParams{}), b.m.show(x[:n*products[0].w.Cols], products); err != nil {
			return err
		}
	}
	for i, p := range products {
		w, bias, err := p.w.Matrix()
		if err != nil {
			return err
		}
		ps[i], biases[i] = kernels.Product{W: w, Dst: p.dst, Add: p.add}, bias
	}
	fused, err := b.rowNorm(norm)
	if err != nil {
		return err
	}
	if fused == nil || !b.pool.MatMulNormed(ph.phase, x, n, fused, ps[:len(products)]...) {
		if x, err = b.normed(x, n, norm); err != nil {
			return err
		}
		b.pool.MatMul(ph.phase, x, n, ps[:len(products)]...)
	}
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

// matmulParts is matmulNormed of the rows in one arithmetic, then of those in the other.
func (b *native) matmulParts(ph arithmetic, x []float32, n int, norm NormParams, products []product) error {
	var behind [len(b.products)]product
	for i, p := range products {
		behind[i] = p.from(ph.decode)
	}
	if err := b.matmulNormed(ph.first(), x, ph.decode, norm, products...); err != nil {
		return err
	}
	return b.matmulNormed(ph.last(), x[ph.decode*products[0].w.Cols:], n-ph.decode, norm, behind[:len(products)]...)
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

	turnings       []turning
	normLast       bool         // after the rotation
	tables         []*ropeTable // one a row
	pos            []int32
	dim            int
	interlaced     bool
	rot            int
	turnRows       func(worker, i int)
	act            Activation
	clamp          Clamp
	curve          Curve
	sparse         *float32 // LayerConfig.Deviations of gates that are sparse
	gate, up       []float32
	activationRows func(worker, i int)
	scale          float32
	joinRows       func(worker, i int)
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
			for u := range t.turnings {
				t.turnRow(&t.turnings[u], r)
			}
		}
	}
	t.joinRows = func(_, i int) {
		for r := i * t.perTask; r < min((i+1)*t.perTask, t.rows); r++ {
			dst, x := t.dst[r*t.width:(r+1)*t.width], t.x[r*t.width:(r+1)*t.width]
			if t.scale != 0 && t.scale != 1 {
				kernels.Scale(x, t.scale)
			}
			kernels.Add(dst, x)
		}
	}
	t.activationRows = func(_, i int) {
		lo := i * t.perTask * t.width
		hi := min(lo+t.perTask*t.width, t.rows*t.width)
		t.activate(lo, hi)
	}
}

// rowNorm is a norm that the kernels take together with a product; nil where it is of another kind.
func (b *native) rowNorm(p NormParams) (*kernels.RowNorm, error) {
	if p.W.Absent() || !p.B.Absent() || b.m.Norm == LayerNorm {
		return nil, nil
	}
	w, err := p.W.Values()
	b.fused = kernels.RowNorm{W: w, Eps: b.m.NormEps}
	return &b.fused, err
}

// normed returns the normalised rows of x [n, D] in scratch, or x itself where there is no norm.
func (b *native) normed(x []float32, n int, p NormParams) ([]float32, error) {
	if p.W.Absent() {
		return x, nil
	}
	out := b.ws.floats(&b.ws.normed, n*b.m.Hidden)
	return out, b.norm(out, x, n, b.m.Hidden, p)
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

// turning is what rows of queries or keys go through: a norm a head or a row, and the rotation.
type turning struct {
	x        []float32 // [rows, heads·dk]
	heads    int
	norm     []float32 // nil = none
	wholeRow bool      // the norm is that of the row, not of a head
	each     bool      // the heads have weights of their own
	heat     *Temperature
}

// turn applies the per-head norm (where the model has one) and the rotation to the rows of q and, where there are any, of k.
func (b *native) turn(p *Pass, layer int, q []float32, qNorm NormParams, k []float32, kNorm NormParams) error {
	m, t := b.m, &b.rows
	qw, err := qNorm.W.Values()
	if err != nil {
		return err
	}
	kw, err := kNorm.W.Values()
	if err != nil {
		return err
	}
	index := m.Layer[layer].Rope
	if len(m.Ropes) == 0 || index < 0 {
		index = -1
	}
	a := &m.Layer[layer].Attention
	if qw == nil && kw == nil && index < 0 && !m.LogN && a.Temperature.Scale == 0 {
		return nil
	}
	t.turnings = t.turnings[:0]
	if q != nil {
		u := turningOf(a, q, a.Heads, qw)
		if a.Temperature.Scale != 0 {
			u.heat = &a.Temperature
		}
		t.turnings = append(t.turnings, u)
	}
	if k != nil {
		t.turnings = append(t.turnings, turningOf(a, k, a.KVHeads, kw))
	}
	t.rows, t.dim, t.pos, t.eps, t.kind, t.normLast = len(p.Pos), a.KeyDim, p.Pos, m.NormEps, m.Norm, a.NormAfterRope
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

func turningOf(a *Attention, x []float32, heads int, norm []float32) turning {
	wide := len(norm) == heads*a.KeyDim && heads > 1
	return turning{x: x, heads: heads, norm: norm, wholeRow: wide && !a.HeadNorms, each: wide && a.HeadNorms}
}

// table returns the rotary table of a row: one for all lengths, but where the angles depend on the sequence's length.
func (b *native) table(index int, p *Pass, row int) *ropeTable {
	rope := &b.m.Ropes[index]
	if !rope.ByLength() {
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

func (t *rowTask) turnRow(u *turning, r int) {
	width := u.heads * t.dim
	x := u.x[r*width : (r+1)*width]
	if u.norm != nil && !t.normLast {
		t.normHeads(u, x)
	}
	if len(t.tables) > 0 {
		cos, sin := t.tables[r].row(int(t.pos[r]))
		if t.interlaced {
			kernels.RopeNorm(x, u.heads, t.dim, t.rot, cos, sin)
		} else {
			kernels.RopeNeox(x, u.heads, t.dim, t.rot, cos, sin)
		}
	}
	if u.norm != nil && t.normLast {
		t.normHeads(u, x)
	}
	if u.heat != nil {
		kernels.Scale(x, u.heat.at(int(t.pos[r])))
	}
}

// normHeads is the norm of one row of queries or keys.
func (t *rowTask) normHeads(u *turning, x []float32) {
	width := t.dim
	if u.wholeRow {
		width = len(x)
	}
	for at := 0; at < len(x); at += width {
		w, part := u.norm, x[at:at+width]
		if u.each {
			w = u.norm[at : at+width]
		}
		if t.kind == LayerNorm {
			kernels.LayerNorm(part, part, w, nil, t.eps)
		} else {
			kernels.RMSNorm(part, part, w, t.eps)
		}
	}
}
