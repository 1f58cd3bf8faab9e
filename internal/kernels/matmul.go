package kernels

import "fmt"

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
	x        []float32
	n, cols  int
	products []Product
	classes  []class // by product
	acts     activations
	rounded  rounded
	tasks    []matmulTask
	scratch  []matmulScratch // one a worker
	prepare  func(worker, i int)
	compute  func(worker, i int)
}

// matmulTask is a range of row tiles of one product times a range of activation rows: of groups of rows for integer and
// matrix products, of rows for the others.
type matmulTask struct{ product, first, last, from, to int }

type matmulScratch struct {
	row   [panelCols]float32
	panel [panelCols * tileRows]float32 // [column][row]
	out   [panelRows * tileRows]float32
	bf16  []byte // steps of two B tiles
	_     [64]byte
}

func (j *matmulJob) init(p *Pool) {
	j.scratch = make([]matmulScratch, p.threads)
	j.prepare = j.prepareTask
	j.compute = j.computeTask
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
	j.x, j.n, j.cols = x, n, cols
	j.products = append(j.products[:0], products...) // copied: the caller's list stays off the heap
	if simd != nil {
		for _, q := range products {
			p.ensurePacked(q.W)
		}
	}
	j.plan(ph)
	if tasks := j.prepareTasks(); n <= 4 {
		for i := range tasks {
			j.prepareTask(0, i)
		}
	} else {
		p.run(tasks, j.prepare)
	}
	j.split(p.threads)
	p.run(len(j.tasks), j.compute)
	j.x = nil
	clear(j.products)
}

// plan chooses the arithmetic of each product and makes room for the forms of the activations that they need. Integer
// groups are of the sizes that the poorest of the products' kernels has.
func (j *matmulJob) plan(ph Phase) {
	j.classes = j.classes[:0]
	j.acts.groups, j.rounded.steps = j.acts.groups[:0], 0
	var sizes []dotKernel
	for _, q := range j.products {
		c := classOf(ph, q.W)
		j.classes = append(j.classes, c)
		switch c {
		case classMatrix:
			j.rounded.plan(j.n, j.cols)
		case classInteger:
			if dot := simd.tiles[q.W.typ].dot; sizes == nil || dot[0].rows < sizes[0].rows {
				sizes = dot
			}
		}
	}
	if sizes != nil {
		j.acts.plan(j.n, j.cols, sizes)
	}
}

// prepareTasks is the number of tasks that convert the activations: one an integer group, then one a group of the
// matrix unit.
func (j *matmulJob) prepareTasks() int {
	if j.rounded.steps > 0 {
		return len(j.acts.groups) + groupsOf(j.n)
	}
	return len(j.acts.groups)
}

func (j *matmulJob) prepareTask(_, i int) {
	if i < len(j.acts.groups) {
		j.acts.quantizeGroup(simd, j.acts.groups[i], j.x)
		return
	}
	first := (i - len(j.acts.groups)) * groupRows
	for r := first; r < min(first+groupRows, j.n); r++ {
		j.rounded.fill(simd.matrix, r, j.x)
	}
}

// Rows of activations that are multiplied with a tile before the next tile is taken: integer activations of about
// actChunkBytes stay in the second-level cache while all tiles of a task pass by, and a float panel is used panelRows
// times.
const (
	actChunkBytes    = 384 << 10
	matrixChunkBytes = 1 << 20 // CPUs with AMX have 2 MiB
	panelRows        = 128
)

// split cuts the job into tasks. With few rows, where a task is microseconds and each claim carries a cache line from
// core to core, sizes fall: every thread finds a large piece of a product first, and small ones that even out the end.
// With many rows pieces are equal, about eight a thread and chunk.
func (j *matmulJob) split(threads int) {
	total := 0
	for _, q := range j.products {
		total += tilesOf(q.W.rows)
	}
	even := max(2, total/(8*threads)&^1) // even: the matrix unit takes tiles by pairs
	j.tasks = j.tasks[:0]
	left := total
	for i, q := range j.products {
		tiles := tilesOf(q.W.rows)
		for from, end := 0, j.chunkEnd(i); from < end; {
			to := j.nextChunk(i, from)
			for first := 0; first < tiles; {
				step := even
				if j.n < fewRows {
					step = max(2, (left*3/(5*threads)+1)&^1)
				}
				last := min(first+step, tiles)
				j.tasks = append(j.tasks, matmulTask{i, first, last, from, to})
				left -= last - first
				first = last
			}
			from = to
		}
	}
}

// fewRows is where a product stops being a matter of memory and hand-offs.
const fewRows = 32

func (j *matmulJob) chunkEnd(product int) int {
	switch j.classes[product] {
	case classInteger:
		return len(j.acts.groups)
	case classMatrix:
		return groupsOf(j.n)
	}
	return j.n
}

// nextChunk is the end of the chunk of groups or rows that starts at from.
func (j *matmulJob) nextChunk(product, from int) int {
	switch j.classes[product] {
	case classInteger:
		rows, to := 0, from
		for to < len(j.acts.groups) && (rows == 0 || rows*j.acts.records*actBytes < actChunkBytes) {
			rows += j.acts.groups[to].rows
			to++
		}
		return to
	case classMatrix:
		return min(from+max(1, matrixChunkBytes/(j.rounded.steps*stepBytes)), groupsOf(j.n))
	}
	return min(from+panelRows, j.n)
}

func tilesOf(rows int) int { return (rows + tileRows - 1) / tileRows }
