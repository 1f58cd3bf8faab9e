package convert

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"

	"golang.org/x/sync/errgroup"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
	"terrace/weights/mapped"
)

// panelValues is how many values a goroutine converts at a time: 1 MiB of float32, so that it stays in the cache.
const panelValues = 256 << 10

// job converts one tensor.
type job struct {
	t     *gguf.Tensor
	info  gguf.Info
	order rowOrder

	rows, cols int
	src        []byte
	importance []float32 // [experts, cols] of the job's rows, nil = none
	perExpert  int       // rows of an expert
}

// weigh gives the job its share of the tensor's importance [experts, cols]: all, or that of one of its parts.
func (j *job) weigh(importance []float32, part, parts int) {
	if importance == nil {
		return
	}
	n := len(importance) / parts
	j.importance = importance[part*n : (part+1)*n]
	j.perExpert = j.rows / (n / j.cols)
}

// quantize makes the blocks of n rows from row first on.
func (j *job) quantize(p *panel, first, n int) error {
	if j.importance == nil {
		return quant.Quantize(j.info.Type, p.blocks, p.values)
	}
	size := j.info.Type.RowBytes(j.cols)
	for i := range n {
		at := (first + i) / j.perExpert * j.cols
		if err := quant.QuantizeWeighted(j.info.Type, p.blocks[i*size:(i+1)*size], p.values[i*j.cols:(i+1)*j.cols], j.importance[at:at+j.cols]); err != nil {
			return err
		}
	}
	return nil
}

// newJob treats a vector as a matrix of one value a row where its values are reordered, else as one row.
func newJob(t *gguf.Tensor, info gguf.Info, order rowOrder) (*job, error) {
	j := &job{t: t, info: info, order: order, rows: t.Rows(), cols: t.Cols()}
	if order != nil && len(t.Shape) == 1 {
		j.rows, j.cols = t.Cols(), 1
	}
	if j.src = t.Raw(); j.src == nil {
		_, err := t.Bytes()
		return nil, err
	}
	return j, nil
}

// writer writes tensors in order, a batch of panels at a time, each made by a goroutine.
type writer struct {
	ctx   context.Context
	out   io.Writer
	bufs  []panel // one a goroutine and batch slot
	wrote func(n int)
}

// panel is the working memory of one panel.
type panel struct {
	values []float32
	rows   []byte // source rows brought into order
	blocks []byte
}

func newWriter(ctx context.Context, out io.Writer, wrote func(n int)) *writer {
	return &writer{ctx: ctx, out: out, bufs: make([]panel, 4*runtime.GOMAXPROCS(0)), wrote: wrote}
}

// produce fills p.blocks with the blocks of n rows from row first on; it is called from many goroutines.
type produce func(p *panel, first, n int) error

// run makes and writes the rows of one tensor; wrote, if not nil, is told which rows are done with.
func (w *writer) run(info gguf.Info, rows, cols int, make produce, wrote func(first, end int)) error {
	step := max(1, panelValues/cols)
	for first := 0; first < rows; {
		g, ctx := errgroup.WithContext(w.ctx)
		g.SetLimit(runtime.GOMAXPROCS(0))
		start, used := first, 0
		for ; used < len(w.bufs) && first < rows; used, first = used+1, first+step {
			p, from, n := &w.bufs[used], first, min(step, rows-first)
			g.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return mapped.Guard(func() error { return make(p, from, n) })
			})
		}
		if err := g.Wait(); err != nil {
			return fmt.Errorf("convert: tensor %q: %w", info.Name, err)
		}
		for i := range used {
			if _, err := w.out.Write(w.bufs[i].blocks); err != nil {
				return fmt.Errorf("convert: %w", err)
			}
			w.wrote(len(w.bufs[i].blocks))
		}
		if wrote != nil {
			wrote(start, min(first, rows))
		}
	}
	return nil
}

// forget lets the pages of rows that are written leave resident memory.
func (j *job) forget(first, end int) {
	if j.order == nil {
		row := j.t.Type.RowBytes(j.cols)
		mapped.Forget(j.src[first*row : end*row])
	}
}

// convert makes the blocks of n rows from row first on.
func (j *job) convert(p *panel, first, n int) error {
	rowBytes := j.t.Type.RowBytes(j.cols)
	src := j.src[first*rowBytes : (first+n)*rowBytes]
	if j.order != nil {
		p.rows = grown(p.rows, len(src))
		for i := range n {
			at := j.order(first+i) * rowBytes
			copy(p.rows[i*rowBytes:(i+1)*rowBytes], j.src[at:at+rowBytes])
		}
		src = p.rows
	}
	if bad := quant.CheckFinite(j.t.Type, src); bad >= 0 {
		return fmt.Errorf("row %d: NaN or infinity: %w", first+bad/j.cols, gguf.ErrNotFinite)
	}
	p.blocks = grown(p.blocks, n*j.info.Type.RowBytes(j.cols))
	if j.t.Type == j.info.Type {
		copy(p.blocks, src)
		return nil
	}
	p.values = grown(p.values, n*j.cols)
	quant.Dequantize(j.t.Type, p.values, src)
	if err := j.quantize(p, first, n); err != nil {
		return err
	}
	if bad := j.unfit(p); bad >= 0 {
		return fmt.Errorf("row %d: the value %g does not fit %s: %w", first+bad/j.cols, p.values[bad], j.info.Type, ErrRange)
	}
	return nil
}

// mostScaled is beyond what a block with scales in half precision holds: 65,504 times the largest code and inner scale (Q6_K: 4,064).
// Above it sums of squares, by which K blocks choose their scales, leave float32 long before a scale does.
const mostScaled = 1e9

// unfit is the index of a value that does not fit the blocks made of it; -1 = all do.
func (j *job) unfit(p *panel) int {
	if bad := quant.CheckFinite(j.info.Type, p.blocks); bad >= 0 { // of a block, by its scale
		from := bad - bad%j.info.Type.BlockLen()
		return from + largest(p.values[from:min(from+j.info.Type.BlockLen(), len(p.values))])
	}
	if j.info.Type != quant.F32 && j.info.Type != quant.BF16 && len(p.values) > 0 {
		if i := largest(p.values); math.Abs(float64(p.values[i])) > mostScaled {
			return i
		}
	}
	return -1
}

// largest is the index of the value farthest from 0; there is one.
func largest(values []float32) (at int) {
	for i, v := range values {
		if math.Abs(float64(v)) > math.Abs(float64(values[at])) {
			at = i
		}
	}
	return at
}

// grown returns a slice of n items, b's memory where it is large enough.
func grown[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n)
	}
	return b[:n]
}
