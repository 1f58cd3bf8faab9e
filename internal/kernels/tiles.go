package kernels

import "unsafe"

// The bf16 arithmetic of the matrix unit (AMX, or VDPBF16PS for weights of 16 bits): weights are unpacked to bf16 panels of 32 rows and activations rounded to
// bf16, both to nearest even, and products are summed in float32, which beats int8 activations in accuracy
// (2^-9 of each value against 2^-8 of the largest of 32). A tile is 16 rows of 64 bytes.
const (
	stepBytes = 2048 // one step of 32 columns: two A tiles of activations, or two B tiles of weights
	groupRows = 32   // activation rows and weight rows of one product of 2 by 2 tiles
)

// tileConfig is the palette for LDTILECFG: eight tiles of 16 rows of 64 bytes.
var tileConfig = func() (c [64]byte) {
	c[0] = 1
	for tile := range 8 {
		c[16+2*tile] = 64
		c[48+tile] = 16
	}
	return c
}()

// A task goes through the columns in slices. A slice of a panel, 32 KiB, is unpacked once into the first-level cache, and there
// multiplied with a slice of up to 512 rows of activations, 512 KiB, which stay in the second-level cache while up to 16 panels
// pass; their sums, 64 KiB a panel, are read and written once a slice. A step then takes 2 KiB from the second-level cache in
// the 64 cycles of its 32,768 multiply-adds. Beside them 128 bytes of the next slice of activations are asked for, what the next
// panel is unpacked from, and the lines of results.
const (
	sliceSteps = 16
	blockRows  = 16 // groups of rows of a task
	mostPanels = 16
)

// rounded are activations in bf16, slice by slice: of each, groups of rows, each a row of steps, each two A tiles of 16 rows
// by 32 columns. Groups are of 32 rows, or of 16 that are split. Rows past the end of the last group hold whatever they held: they
// only make results that nobody reads.
type rounded struct {
	buf           []byte
	huge          *Huge
	steps, groups int
	rows          int // of a group
}

func (a *rounded) plan(n, cols, rows int) {
	a.steps, a.groups, a.rows = cols/recordCols, (n+rows-1)/rows, rows
	if need := a.groups * a.steps * stepBytes; len(a.buf) < need {
		a.huge.Free()
		a.huge = NewHuge()
		a.buf = a.huge.Take(need)
	}
}

// slice is how many steps the slice that starts at a step has.
func (a *rounded) slice(step int) int { return min(sliceSteps, a.steps-step) }

// at is group g of the slice that starts at a step.
func (a *rounded) at(step, g int) *byte {
	return &a.buf[(step*a.groups+g*a.slice(step))*stepBytes]
}

// fillSteps steps of a group's rows are rounded in turn: 32 rows write 8 KiB in one place, not lines a step apart that share few
// places of a cache.
const fillSteps = 4

// fill rounds or splits the rows of group g of x [n, cols].
func (a *rounded) fill(u *matrixUnit, g int, x []float32, n int) {
	cols, round := a.steps*recordCols, u.round
	if a.rows == splitRows {
		round = u.split
	}
	for step := 0; step < a.steps; step += fillSteps {
		slice := step / sliceSteps * sliceSteps
		act := unsafe.Add(unsafe.Pointer(a.at(slice, g)), (step-slice)*stepBytes)
		for r := range min(a.rows, n-g*a.rows) {
			round((*byte)(unsafe.Add(act, r*64)), &x[(g*a.rows+r)*cols+step*recordCols], min(fillSteps, a.steps-step))
		}
	}
}

// matrixTask multiplies pairs of tiles with groups [from, to) of the rounded activations.
func (j *matmulJob) matrixTask(t *matmulTask, s *matmulScratch) {
	for first := t.first; first < t.last; first += 2 * mostPanels {
		block := *t
		block.first, block.last = first, min(first+2*mostPanels, t.last)
		s.makeSums((block.last - first + 1) / 2 * (t.to - t.from))
		for step := 0; step < j.rounded.steps; step += sliceSteps {
			for tile := first; tile < block.last; tile += 2 {
				j.matrixSlice(&block, s, tile, step)
			}
		}
	}
}

// makeSums makes room for sums of so many groups, and for a slice of a panel.
func (s *matmulScratch) makeSums(groups int) {
	need := groups * groupRows * groupRows
	if len(s.sums) >= need {
		return
	}
	s.huge.Free()
	s.huge = NewHuge()
	s.sums = unsafe.Slice((*float32)(unsafe.Pointer(&s.huge.Take(4 * need)[0])), need)
	s.bf16 = s.huge.Take(sliceSteps * stepBytes)
}

// matrixSlice adds the products of one slice of a pair of tiles to the pair's sums, [groups][32][32], or, of the last slice,
// writes them to where they belong.
func (j *matmulJob) matrixSlice(t *matmulTask, s *matmulScratch, tile, step int) {
	q, steps := j.products[t.product], j.rounded.slice(step)
	row0 := tile * tileRows
	rows := min(groupRows, q.W.rows-row0)
	at := tileBytes(q.W.typ, step*recordCols)
	a := &s.args
	*a = tileArgs{groupBytes: uintptr(steps) * stepBytes, steps: steps, tileBytes: uintptr(q.W.tile)}
	if unpack := simd.matrix.unpack[q.W.typ]; unpack != nil {
		for half := range tilesOf(rows) {
			unpack(&s.bf16[half*stepBytes/2], q.W.inTile(tile+half, at), steps)
		}
		a.panel, a.panel2, a.panelStep = &s.bf16[0], &s.bf16[stepBytes/2], stepBytes
	} else {
		a.pairs(q.W, tile, at)
	}
	groups, panel := t.to-t.from, (tile-t.first)/2
	sums := s.sums[panel*groups*groupRows*groupRows:]
	a.nextAct = uintptr(unsafe.Pointer(j.rounded.at((step+steps)%j.rounded.steps, t.from))) + uintptr(panel*groups*steps*128)
	a.nextTile = q.W.tileAt(tile)
	if tile+2 < t.last {
		a.nextTile = q.W.inTile(tile+2, at)
		a.tileStep = uintptr(tileBytes(q.W.typ, steps*recordCols) / (groups * steps))
	}
	multiply := func(dst *float32, stride, first, last int) {
		if first == last {
			return
		}
		if a.from = nil; step > 0 {
			a.from = &sums[(first-t.from)*groupRows*groupRows]
		}
		a.dst, a.strideBytes, a.act, a.groups = dst, uintptr(stride)*4, j.rounded.at(step, first), last-first
		simd.matrix.multiply(&tileConfig[0], a)
	}
	if step+steps < j.rounded.steps {
		multiply(&sums[0], groupRows, t.from, t.to)
		return
	}
	whole := t.to
	if t.to*groupRows > j.n {
		whole--
	}
	if rows < groupRows {
		whole = t.from
	}
	multiply(&q.Dst[t.from*groupRows*q.W.rows+row0], q.W.rows, t.from, whole)
	for g := whole; g < t.to; g++ {
		multiply(&s.out[0], groupRows, g, g+1)
		for r := range min(groupRows, j.n-g*groupRows) {
			copy(q.Dst[(g*groupRows+r)*q.W.rows+row0:][:rows], s.out[r*groupRows:])
		}
	}
}

// pairs makes the panels the pair of tiles itself from a byte on; the second is the first where there is none.
func (a *tileArgs) pairs(m *Matrix, tile, at int) {
	a.panel, a.panel2, a.panelStep = m.inTile(tile, at), m.inTile(min(tile+1, tilesOf(m.rows)-1), at), stepBytes/2
}
