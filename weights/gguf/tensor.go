package gguf

import (
	"fmt"
	"sync"

	"terrace/internal/kernels/quant"
	"terrace/weights/mapped"
)

// Tensor is a named array of weights in a ggml block format, read when first asked for.
type Tensor struct {
	Name  string
	Type  quant.Type
	Shape []int // outermost first; the last is the row length in values

	load  func() ([]byte, error)
	parts []*Tensor // of a stacked tensor
	place place     // where its bytes lie as they are
	lent  bool      // bytes are read again at each use (ReadThrough)
	// readAt reads some of them from the tensor's place; nil = it is not lent, or its place is not known.
	readAt func(path string, p []byte, offset int64) error

	mu      sync.Mutex
	loaded  bool
	data    []byte
	err     error
	scanned bool
	scanErr error
}

// NewTensor makes a tensor whose bytes (rows of blocks, row-major) come from load, which is called at the first use (and
// again after Drop). Bytes of another length than shape and type say are an error.
func NewTensor(name string, t quant.Type, shape []int, load func() ([]byte, error)) *Tensor {
	return &Tensor{Name: name, Type: t, Shape: shape, load: load}
}

// Stack makes a tensor of one more leading dimension from tensors of equal type and shape, one after the other (the experts
// of a layer). Its bytes are copied together when Bytes or Raw is called; see Parts.
func Stack(name string, parts []*Tensor) *Tensor {
	t := &Tensor{Name: name, Type: parts[0].Type, Shape: append([]int{len(parts)}, parts[0].Shape...), parts: parts}
	t.load = func() ([]byte, error) {
		all := make([]byte, 0, t.SizeBytes())
		for _, p := range parts {
			data, err := p.bytes()
			if err != nil {
				return nil, err
			}
			all = append(all, data...)
		}
		return all, nil
	}
	return t
}

// Parts lists the tensors that a stacked tensor was made from, else the tensor itself. Who passes the bytes on one part after
// the other and drops each need not hold the whole.
func (t *Tensor) Parts() []*Tensor {
	if t.parts == nil {
		return []*Tensor{t}
	}
	return t.parts
}

// Cols is the row length in values.
func (t *Tensor) Cols() int { return t.Shape[len(t.Shape)-1] }

// Rows is the number of rows with all leading dimensions flattened.
func (t *Tensor) Rows() int {
	rows := 1
	for _, n := range t.Shape[:len(t.Shape)-1] {
		rows *= n
	}
	return rows
}

// SizeBytes is the number of bytes of all blocks.
func (t *Tensor) SizeBytes() int64 { return int64(t.Rows()) * int64(t.Type.RowBytes(t.Cols())) }

// Raw returns the blocks without looking at them, nil if they cannot be had (Bytes says why). They must not be changed.
func (t *Tensor) Raw() []byte {
	data, _ := t.bytes()
	return data
}

// Bytes returns the blocks; they must not be changed. The first call scans them for NaN and Inf, in the values of F32, F16
// and BF16 and in the scales of blocks; errors name the tensor and wrap ErrNotFinite, ErrFormat or mapped.ErrChanged.
func (t *Tensor) Bytes() ([]byte, error) {
	data, err := t.bytes()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.scanned {
		t.scanErr, t.scanned = t.scan(data), !t.lent
	}
	if t.scanErr != nil {
		return nil, t.scanErr
	}
	return data, nil
}

// Row writes columns [from, from+len(dst)) of a row to dst. No more than the blocks that hold them is read and scanned: of a table as large as a
// model, of which a token needs a row, the rest stays in the file. Errors are those of Bytes.
func (t *Tensor) Row(dst []float32, row, from int) error {
	block := t.Type.BlockLen()
	first, last := from/block*block, (from+len(dst)+block-1)/block*block
	part, err := t.within(row*t.Type.RowBytes(t.Cols())+t.Type.RowBytes(first), t.Type.RowBytes(last-first))
	if err != nil {
		return err
	}
	if bad := quant.CheckFinite(t.Type, part); bad >= 0 {
		return t.notFinite(row, first+bad)
	}
	if first == from && last == from+len(dst) {
		quant.Dequantize(t.Type, dst, part)
		return nil
	}
	whole := make([]float32, last-first)
	quant.Dequantize(t.Type, whole, part)
	copy(dst, whole[from-first:])
	return nil
}

// within is n bytes of the tensor from one on.
func (t *Tensor) within(from, n int) ([]byte, error) {
	if t.readAt == nil {
		data, err := t.bytes()
		if err != nil {
			return nil, err
		}
		return data[from : from+n], nil
	}
	part := make([]byte, n)
	if err := t.readAt(t.place.path, part, t.place.offset+int64(from)); err != nil {
		return nil, fmt.Errorf("gguf: tensor %q: %w", t.Name, err)
	}
	return part, nil
}

func (t *Tensor) bytes() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loaded {
		return t.data, t.err
	}
	var data []byte
	err := mapped.Guard(func() (err error) {
		data, err = t.load()
		return err
	})
	if err == nil && int64(len(data)) != t.SizeBytes() {
		err = fmt.Errorf("%w: got %d bytes, want %d", ErrFormat, len(data), t.SizeBytes())
	}
	if err != nil {
		data, err = nil, fmt.Errorf("gguf: tensor %q: %w", t.Name, err)
	}
	if t.loaded = !t.lent; t.loaded {
		t.data, t.err = data, err
	}
	return data, err
}

// Drop lets go of the bytes: those that were computed are computed again at the next use, those of a mapped file leave
// resident memory. Slices already handed out stay valid.
func (t *Tensor) Drop() {
	for _, p := range t.parts {
		p.Drop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if mapped.Holds(t.data) {
		mapped.Forget(t.data)
		return
	}
	if t.err == nil {
		t.data, t.loaded = nil, false
	}
}

func (t *Tensor) scan(data []byte) error {
	bad := -1
	err := mapped.Guard(func() error {
		bad = quant.CheckFinite(t.Type, data)
		return nil
	})
	if err != nil {
		return fmt.Errorf("gguf: tensor %q: %w", t.Name, err)
	}
	if bad < 0 {
		return nil
	}
	return t.notFinite(bad/t.Cols(), bad%t.Cols())
}

func (t *Tensor) notFinite(row, column int) error {
	what := "value"
	if t.Type.BlockLen() > 1 {
		what = "scale of the block at"
	}
	return fmt.Errorf("gguf: tensor %q: %s row %d column %d is NaN or infinite: %w", t.Name, what, row, column, ErrNotFinite)
}
