package kernels

import "fmt"

// Gated is a gated feed-forward network, Down · (act(Gate·x) · (Up·x)). Act writes act(gate)·up to dst, which is gate,
// number by number.
type Gated struct {
	Gate, Up *Matrix
	Act      func(dst, gate, up []float32)
	Down     Product
	Norm     *RowNorm // of x; nil: as it is
}

// MatMulGated computes the network for the n rows of x [n, cols] and says whether it could: only where all three products
// are of integer arithmetic in this phase; if not, nothing is written. Results are those of MatMul of Gate and Up, Act, and
// MatMul of Down, bit for bit. What Gate and Up give never leaves the core that computed it but as int8 activations: for
// each 32 of their rows a task has the activation of 32 columns, which is a record of Down's input. That saves
// 3·n·width float32 that would be written by one core and half of them read by another, and two hand-overs.
func (p *Pool) MatMulGated(ph Phase, x []float32, n int, f *Gated) bool {
	cols, width := f.Gate.cols, f.Gate.rows
	if f.Up.cols != cols || f.Up.rows != width || f.Down.W.cols != width || len(x) < n*cols || len(f.Down.Dst) < n*f.Down.W.rows {
		panic(fmt.Sprintf("kernels: MatMulGated of %d rows: x %d, gate [%d, %d], up [%d, %d], down [%d, %d], Dst %d",
			n, len(x), width, cols, f.Up.rows, f.Up.cols, f.Down.W.rows, f.Down.W.cols, len(f.Down.Dst)))
	}
	if n <= 0 || width%recordCols != 0 || !integers(ph, Product{W: f.Gate}, Product{W: f.Up}, f.Down) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	j := &p.mm
	j.x, j.n, j.cols, j.gated, j.norm = x, n, cols, f, f.Norm
	j.products = append(j.products[:0], Product{W: f.Gate}, Product{W: f.Up}, f.Down)
	p.ensureAllPacked()
	j.plan(ph)
	j.between.plan(n, width, j.groupSizes())
	p.prepare()
	j.products = j.products[:1] // tasks are ranges of Gate's tiles, and the same of Up's
	j.split(p.threads)
	p.run(len(j.tasks), j.gate)
	j.products[0] = f.Down
	j.acts, j.between, j.cols = j.between, j.acts, width
	j.split(p.threads)
	p.run(len(j.tasks), j.compute)
	j.x, j.gated, j.norm = nil, nil, nil
	clear(j.products[:3])
	return true
}

// gatedTask takes pairs of tiles, 32 rows, of Gate and of Up to a record of Down's activations.
func (j *matmulJob) gatedTask(worker, i int) {
	t, s, f := &j.tasks[i], &j.scratch[worker], j.gated
	gate, up := &simd.tiles[f.Gate.typ], &simd.tiles[f.Up.typ]
	for tile := t.first; tile < t.last; tile += 2 {
		from := t.from
		for n := j.manyGated(gate, up, from, t.to); n > 0; n = j.manyGated(gate, up, from, t.to) {
			for half := range 2 {
				j.many(s, gate, f.Gate.tileAt(tile+half), from, n, s.gate[half*tileRows:], recordCols)
				j.many(s, up, f.Up.tileAt(tile+half), from, n, s.up[half*tileRows:], recordCols)
			}
			for _, g := range j.acts.groups[from : from+n] { // on their way while Act computes
				ownBytes(j.between.span(g, tile/2, tile/2+1))
			}
			all := n * manyRows * recordCols
			f.Act(s.gate[:all], s.gate[:all], s.up[:all])
			for i, g := range j.acts.groups[from : from+n] {
				j.between.quantizeRecord(simd, g, tile/2, s.gate[i*manyRows*recordCols:])
			}
			from += n
		}
		for _, g := range j.acts.groups[from:t.to] {
			if g.rows < maxGroup {
				ownBytes(j.between.span(g, tile/2, tile/2+1))
			}
			act, gateRun, upRun := j.acts.at(g), kernelFor(gate.dot, g.rows), kernelFor(up.dot, g.rows)
			for half := range 2 {
				gateRun(&s.gate[half*tileRows], recordCols*4, f.Gate.tileAt(tile+half), act, j.acts.records)
				upRun(&s.up[half*tileRows], recordCols*4, f.Up.tileAt(tile+half), act, j.acts.records)
			}
			n := g.rows * recordCols
			f.Act(s.gate[:n], s.gate[:n], s.up[:n])
			j.between.quantizeRecord(simd, g, tile/2, s.gate[:n])
		}
	}
}

// manyGated is manyGroups for both matrices.
func (j *matmulJob) manyGated(gate, up *tileKernels, from, to int) int {
	return min(j.manyGroups(gate, from, to), j.manyGroups(up, from, to))
}
