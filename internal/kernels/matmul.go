package kernels

import "fmt"

// Phase is the arithmetic class of a product.
type Phase uint8

const (
	Prefill Phase = iota // many rows: the fastest arithmetic for panels of rows
	Decode               // few rows: the fastest arithmetic straight from the quantised blocks
	Exact                // dequantised float32 weights times float32 activations
)

// Product is one matrix of a MatMul with its results, Dst [n, W.Rows()]; where Add is set they are added to what Dst holds.
type Product struct {
	W   *Matrix
	Dst []float32
	Add bool
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
	norm     *RowNorm // of x; nil: as it is
	n, cols  int
	products []Product
	classes  []class // by product
	acts     activations
	pieces   int // parts of the columns of an integer group that are converted apart
	gated    *Gated
	between  activations // what Gated multiplies last
	sums     []float32   // results that are yet to be added
	addends  []Product
	rounded  rounded
	tasks    []matmulTask
	scratch  []matmulScratch // one a worker
	prepare  func(worker, i int)
	compute  func(worker, i int)
	gate     func(worker, i int)
	add      func(worker, i int)
}

// matmulTask is a range of row tiles of one product times a range of activation rows: of groups of rows for integer and
// matrix products, of rows for the others.
type matmulTask struct{ product, first, last, from, to int }

type matmulScratch struct {
	row   [panelCols]float32
	panel [panelCols * tileRows]float32 // [column][row]
	out   [panelRows * tileRows]float32
	gate  [mostMany * recordCols]float32
	up    [mostMany * recordCols]float32
	bf16  []byte    // a slice of two B tiles a step
	sums  []float32 // of the matrix unit, between slices
	huge  *Huge
	args  tileArgs
	rows  []float32 // normalised
	_     [16]byte  // apart from the next worker's, and a multiple of a line
}

func (j *matmulJob) init(p *Pool) {
	j.scratch = make([]matmulScratch, p.threads)
	j.prepare = j.prepareTask
	j.compute, j.gate, j.add = j.computeTask, j.gatedTask, j.addTask
}

// MatMul computes Dst[r] = W x[r] for the n rows of x [n, cols] and every product. All products share cols. A row's
// result does not depend on n, on the other products or on the number of threads. NaN or Inf in a row of x makes that
// row's results NaN or Inf.
func (p *Pool) MatMul(ph Phase, x []float32, n int, products ...Product) {
	p.matMul(ph, x, n, nil, products)
}

func (p *Pool) matMul(ph Phase, x []float32, n int, norm *RowNorm, products []Product) {
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
	j.x, j.n, j.cols, j.norm = x, n, cols, norm
	j.products = append(j.products[:0], products...) // copied: the caller's list stays off the heap
	p.ensureAllPacked()
	j.plan(ph)
	j.setAside()
	p.prepare()
	j.split(p.threads)
	p.run(len(j.tasks), j.compute)
	if len(j.addends) > 0 {
		p.run(n, j.add)
		clear(j.addends)
	}
	j.x, j.norm = nil, nil
	clear(j.products)
}

func (p *Pool) ensureAllPacked() {
	if simd == nil {
		for _, q := range p.mm.products {
			q.W.restore()
		}
		return
	}
	for _, q := range p.mm.products {
		p.ensurePacked(q.W)
	}
}

// prepare converts the activations.
func (p *Pool) prepare() {
	j := &p.mm
	if tasks := j.prepareTasks(p.threads); j.n*j.cols > aloneNumbers {
		p.run(tasks, j.prepare)
	} else {
		for i := range tasks {
			j.prepareTask(0, i)
		}
	}
}

// setAside gives products of the matrix unit, which stores what it computes, a place from which results are added later.
func (j *matmulJob) setAside() {
	j.addends = j.addends[:0]
	for i, c := range j.classes {
		q := &j.products[i]
		if !q.Add || c != classMatrix {
			continue
		}
		if need := j.n * q.W.rows; cap(j.sums) < need {
			j.sums = make([]float32, need)
		}
		if len(j.addends) > 0 {
			panic("kernels: MatMul: one product at most may be added in the matrix unit's arithmetic")
		}
		j.addends = append(j.addends, *q)
		q.Dst, q.Add = j.sums[:j.n*q.W.rows], false
	}
}

func (j *matmulJob) addTask(_, r int) {
	for _, q := range j.addends {
		rows := q.W.rows
		elem.add(q.Dst[r*rows:(r+1)*rows], j.sums[r*rows:(r+1)*rows])
	}
}

// plan chooses the arithmetic of each product and makes room for the forms of the activations that they need. Integer
// groups are of the sizes that the poorest of the products' kernels has.
func (j *matmulJob) plan(ph Phase) {
	j.classes = j.classes[:0]
	j.acts.groups, j.rounded.steps = j.acts.groups[:0], 0
	for _, q := range j.products {
		c := classOf(ph, q.W)
		j.classes = append(j.classes, c)
		switch c {
		case classMatrix:
			j.rounded.plan(j.n, j.cols, groupRows)
		case classSplit:
			j.rounded.plan(j.n, j.cols, splitRows)
		}
	}
	if sizes := j.groupSizes(); sizes != nil {
		j.acts.plan(j.n, j.cols, sizes)
	}
}

// groupSizes are the kernels of the poorest of the integer products, nil without such.
func (j *matmulJob) groupSizes() (sizes []dotKernel) {
	for i, q := range j.products {
		if j.classes[i] != classInteger {
			continue
		}
		if dot := simd.tiles[q.W.typ].dot; sizes == nil || dot[0].rows < sizes[0].rows {
			sizes = dot
		}
	}
	return sizes
}

// aloneNumbers of activations are converted by the caller alone: a hand-over would take longer.
const aloneNumbers = 1600

// prepareTasks is the number of tasks that convert the activations: first the integer groups, each cut by columns where
// there are few, then one a group of the matrix unit. Columns, not rows: rows of a group share cache lines, which must
// not go back and forth between cores.
func (j *matmulJob) prepareTasks(threads int) int {
	j.pieces = 1
	if n := len(j.acts.groups); n > 0 && n < threads && j.n*j.cols > aloneNumbers {
		j.pieces = min(threads, j.acts.records)
	}
	tasks := len(j.acts.groups) * j.pieces
	if j.rounded.steps > 0 {
		tasks += j.rounded.groups
	}
	return tasks
}

func (j *matmulJob) prepareTask(worker, i int) {
	if g := i / j.pieces; g < len(j.acts.groups) {
		all, piece := j.acts.records, i%j.pieces
		j.quantizeTask(worker, j.acts.groups[g], all*piece/j.pieces, all*(piece+1)/j.pieces)
		return
	}
	j.rounded.fill(simd.matrix, i-len(j.acts.groups)*j.pieces, j.x, j.n)
}

// Rows of activations that are multiplied with a tile before the next tile is taken: integer activations of about
// actChunkBytes stay in the second-level cache while all tiles of a task pass by, and a float panel is used panelRows
// times. Where a panel is spread for them there are leastMany rows or more, which may stream from the third level: a record
// of 32 columns and 4 rows is 208 bytes for 4096 operations.
const (
	actChunkBytes = 384 << 10
	panelRows     = 128
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
	case classMatrix, classSplit:
		return j.rounded.groups
	}
	return j.n
}

// nextChunk is the end of the chunk of groups or rows that starts at from.
func (j *matmulJob) nextChunk(product, from int) int {
	switch j.classes[product] {
	case classInteger:
		least := 1
		if simd.tiles[j.products[product].W.typ].many.spread != nil {
			least = leastMany
		}
		rows, to := 0, from
		for to < len(j.acts.groups) && (rows < least || rows*j.acts.records*actBytes < actChunkBytes) {
			rows += j.acts.groups[to].rows
			to++
		}
		return to
	case classMatrix:
		return min(from+blockRows, j.rounded.groups)
	case classSplit:
		return min(from+panelRows/splitRows, j.rounded.groups)
	}
	return min(from+panelRows, j.n)
}

func tilesOf(rows int) int { return (rows + tileRows - 1) / tileRows }
