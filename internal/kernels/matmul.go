package kernels

import (
	"fmt"

	"terrace/internal/kernels/quant"
)

// Phase is the arithmetic class of a product.
type Phase uint8

const (
	Prefill Phase = iota // many rows: the fastest arithmetic for panels of rows
	Decode               // few rows: the fastest arithmetic straight from the quantised blocks
	Exact                // dequantised float32 weights times float32 activations
)

// Product is one matrix of a MatMul with its results, Dst [n, W.Rows()].
type Product struct {
	W   *Matrix
	Dst []float32
}

// Tile shape of the float panel: tileRows weight rows by up to panelCols columns. A chunk of columns is summed on its
// own before it is added to the result, which keeps float32 sums of thousands of products good to about 1e-6 of the sum
// of their magnitudes. 256 is a multiple of every block length; a panel is 16 KiB, half of a small L1.
const (
	tileRows  = 16
	panelCols = 256
)

// matmulJob is the state of the MatMul in flight, kept in the pool so that steady state allocates nothing.
type matmulJob struct {
	phase    Phase
	x        []float32
	n, cols  int
	products []Product
	tasks    []matmulTask
	scratch  []matmulScratch // one a worker
	exact    func(worker, i int)
}

// matmulTask is a range of row tiles of one product.
type matmulTask struct{ product, first, last int }

type matmulScratch struct {
	row   [panelCols]float32
	panel [panelCols * tileRows]float32 // [column][row]
	out   []float32                     // [n, tileRows]
}

func (j *matmulJob) init(p *Pool) {
	j.scratch = make([]matmulScratch, p.threads)
	j.exact = j.exactTask
}

// MatMul computes Dst[r] = W x[r] for the n rows of x [n, cols] and every product. All products share cols. A row's
// result does not depend on n, on the other products or on the number of threads. NaN or Inf in a row of x makes that
// row's results NaN or Inf.
func (p *Pool) MatMul(ph Phase, x []float32, n int, products ...Product) {
	if n <= 0 || len(products) == 0 {
		return
	}
	cols := products[0].W.cols
	for _, q := range products {
		if q.W.cols != cols || len(x) < n*cols || len(q.Dst) < n*q.W.rows {
			panic(fmt.Sprintf("kernels: MatMul of %d rows: x %d, W [%d, %d], Dst %d", n, len(x), q.W.rows, q.W.cols, len(q.Dst)))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	j := &p.mm
	j.phase, j.x, j.n, j.cols = ph, x, n, cols
	j.products = append(j.products[:0], products...) // copied: the caller's list stays off the heap
	j.split(p.threads)
	p.run(len(j.tasks), j.exact)
	j.x = nil
	clear(j.products)
}

// split cuts the row tiles of all products into about four tasks a thread, so that an uneven or disturbed core does
// not hold up the rest.
func (j *matmulJob) split(threads int) {
	total := 0
	for _, q := range j.products {
		total += tilesOf(q.W.rows)
	}
	step := max(1, total/(4*threads))
	j.tasks = j.tasks[:0]
	for i, q := range j.products {
		tiles := tilesOf(q.W.rows)
		for first := 0; first < tiles; first += step {
			j.tasks = append(j.tasks, matmulTask{i, first, min(first+step, tiles)})
		}
	}
}

func tilesOf(rows int) int { return (rows + tileRows - 1) / tileRows }

// exactTask computes a range of row tiles from dequantised panels.
func (j *matmulJob) exactTask(worker, i int) {
	t, s := j.tasks[i], &j.scratch[worker]
	q := j.products[t.product]
	if cap(s.out) < j.n*tileRows {
		s.out = make([]float32, j.n*tileRows)
	}
	out := s.out[:j.n*tileRows]
	for tile := t.first; tile < t.last; tile++ {
		clear(out)
		for c := 0; c < j.cols; c += panelCols {
			k := min(panelCols, j.cols-c)
			s.fill(q.W, tile*tileRows, c, k)
			panelGo(out, j.x[c:], j.cols, s.panel[:k*tileRows], j.n, k)
		}
		rows := min(tileRows, q.W.rows-tile*tileRows)
		for r := range j.n {
			copy(q.Dst[r*q.W.rows+tile*tileRows:][:rows], out[r*tileRows:])
		}
	}
}

// fill dequantises columns [c, c+k) of the tile's rows into the panel; rows past the end are zero.
func (s *matmulScratch) fill(m *Matrix, row0, c, k int) {
	from, to := m.typ.RowBytes(c), m.typ.RowBytes(c+k)
	rows := min(tileRows, m.rows-row0)
	if rows < tileRows {
		clear(s.panel[:])
	}
	for r := range rows {
		quant.Dequantize(m.typ, s.row[:k], m.data[(row0+r)*m.rowBytes+from:(row0+r)*m.rowBytes+to])
		for i, v := range s.row[:k] {
			s.panel[i*tileRows+r] = v
		}
	}
}
