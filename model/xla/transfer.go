package xla

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/shapes"

	"terrace/internal/trace"
)

// number is what lies on a device.
type number interface {
	float32 | int32 | bfloat16.BFloat16
}

// upload copies flat values, row-major, to the device; what and a layer (-1: none) name them in the
// timeline.
func upload[T number](d *device, what string, layer int, flat []T, dims ...int) (operand, error) {
	shape := shapes.Make(dtypes.FromGenericsType[T](), dims...)
	if shape.Size() != len(flat) {
		return operand{}, fmt.Errorf("xla: %d values for shape %v", len(flat), dims)
	}
	var o operand
	d.upward.Lock()
	defer d.upward.Unlock()
	span, begun := d.trace.Layer(trace.Up, what, layer).By(d.name), time.Now()
	defer func() {
		d.account(func(c *Counts) { c.UpTime += time.Since(begun) })
		span.EndBytes(o.bytes())
	}()
	buffer, err := d.compute.BufferFromFlatData(0, flat, shape)
	if err != nil {
		return operand{}, fmt.Errorf("xla: upload of %v: %w", dims, err)
	}
	o = owned(buffer, shape)
	return o, nil
}

// uploadCounted is upload of what is no weight.
func uploadCounted[T number](d *device, what string, layer int, x []T, dims ...int) (operand, error) {
	o, err := upload(d, what, layer, x, dims...)
	d.account(func(c *Counts) { c.UploadBytes += o.bytes() })
	return o, err
}

// rounded is x in bfloat16, to nearest with ties to even.
func rounded(x []float32) []bfloat16.BFloat16 {
	out := make([]bfloat16.BFloat16, len(x))
	apart(len(x), func(from, to int) {
		for i, f := range x[from:to] {
			out[from+i] = bfloat16.FromFloat32(f)
		}
	})
	return out
}

// apart runs do over parts of n numbers, several at a time where there are many.
func apart(n int, do func(from, to int)) {
	const part = 1 << 18
	if n <= part {
		do(0, n)
		return
	}
	var all sync.WaitGroup
	size := max(part, (n+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := 0; from < n; from += size {
		all.Go(func() { do(from, min(from+size, n)) })
	}
	all.Wait()
}

// reading begins the account of a read of n values of a buffer; the function ends it.
func (d *device) reading(n int, o operand) (done func()) {
	bytes := int64(n * o.shape.DType.Size())
	if !d.compute.HasSharedBuffers() {
		bytes = o.bytes() // a buffer comes whole
	}
	d.downward.Lock()
	span, begun := d.trace.Span(trace.Down, "read").By(d.name), time.Now()
	return func() {
		d.account(func(c *Counts) {
			c.DownTime += time.Since(begun)
			c.DownloadBytes += bytes
		})
		span.EndBytes(bytes)
		d.downward.Unlock()
	}
}

// readInts copies a buffer of integers to the host.
func (d *device) readInts(o operand) ([]int32, error) {
	defer d.reading(o.shape.Size(), o)()
	flat, err := flatten[int32](d, o, nil)
	return slices.Clone(flat), err
}

// read copies the first len(dst) values of a buffer to the host.
func (d *device) read(dst []float32, o operand) error {
	defer d.reading(len(dst), o)()
	if o.shape.DType == dtypes.BFloat16 {
		if n := o.shape.Size(); cap(d.halves) < n {
			d.halves = make([]bfloat16.BFloat16, n)
		}
		flat, err := flatten(d, o, d.halves[:o.shape.Size()])
		if err != nil {
			return err
		}
		apart(len(dst), func(from, to int) {
			for i, x := range flat[from:to] {
				dst[from+i] = x.Float32()
			}
		})
		return nil
	}
	flat, err := flatten(d, o, dst)
	if err == nil && &flat[0] != &dst[0] {
		copy(dst, flat)
	}
	return err
}

// flatten is a buffer's values: the device's own where the host sees them, else a copy, in into where it has their number.
func flatten[T number](d *device, o operand, into []T) ([]T, error) {
	if d.compute.HasSharedBuffers() {
		flat, err := o.r.buffer.Data()
		if err != nil {
			return nil, fmt.Errorf("xla: reading %v: %w", o.shape, err)
		}
		return flat.([]T), nil
	}
	if len(into) != o.shape.Size() {
		into = make([]T, o.shape.Size())
	}
	if err := o.r.buffer.ToFlatData(into); err != nil {
		return nil, fmt.Errorf("xla: reading %v: %w", o.shape, err)
	}
	return into, nil
}
