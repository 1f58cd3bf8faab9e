package weights

import (
	"context"
	"errors"
	"fmt"
	"io"

	"terrace/weights/gguf"
	"terrace/weights/mapped"
)

// Meta is a model's metadata under GGUF's key names.
type Meta = gguf.Meta

// Tensor is a named array of weights.
type Tensor = gguf.Tensor

// Model is an open model.
type Model struct {
	path    string
	format  string
	meta    *Meta
	tensors []*Tensor
	byName  map[string]*Tensor
	folded  map[string]bool // names of scales (foldScales)
	size    int64
	closers []io.Closer
	notices []string
	checks  []func() error // one a file: is it still the one that was opened?
}

// Path is the name the model was opened by.
func (m *Model) Path() string { return m.path }

// Notices are what a user should know of the file, a line each.
func (m *Model) Notices() []string { return m.notices }

// Format is "gguf" or "safetensors".
func (m *Model) Format() string { return m.format }

// Meta returns the metadata; it does not depend on the model staying open.
func (m *Model) Meta() *Meta { return m.meta }

// Tensors lists all tensors in the order of the files.
func (m *Model) Tensors() []*Tensor { return m.tensors }

// Has reports whether the model has a tensor.
func (m *Model) Has(name string) bool { return m.byName[name] != nil }

// Tensor returns a tensor by name. Errors wrap ErrMissingTensor and name the file.
func (m *Model) Tensor(name string) (*Tensor, error) {
	if t := m.byName[name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("weights: %s: tensor %q: %w", m.path, name, ErrMissingTensor)
}

// SizeBytes is the size of all weight files.
func (m *Model) SizeBytes() int64 { return m.size }

// Close unmaps the files; the tensors' bytes must not be used any more.
func (m *Model) Close() error {
	var errs []error
	for _, c := range m.closers {
		errs = append(errs, c.Close())
	}
	m.closers = nil
	return errors.Join(errs...)
}

// ReadThrough has the bytes of tensors read at each use from now on, by the path of a file and an offset in it, and gives the files'
// mappings up where all of their tensors are read so. It comes before the first use of a tensor.
func (m *Model) ReadThrough(read func(path string, p []byte, offset int64) error) error {
	for _, t := range m.tensors {
		t.ReadThrough(read)
	}
	var errs []error
	for _, c := range m.closers {
		switch f := c.(type) {
		case interface{ Unmap() error }:
			errs = append(errs, f.Unmap())
		case interface {
			ReadThrough(func(path string, p []byte, offset int64) error)
		}:
			f.ReadThrough(read)
		}
	}
	return errors.Join(errs...)
}

// Owns has Close close c too, before the files.
func (m *Model) Owns(c io.Closer) { m.closers = append([]io.Closer{c}, m.closers...) }

// CheckUnchanged compares every weight file with what it was when opened. Errors wrap ErrFileChanged.
func (m *Model) CheckUnchanged() error {
	for _, check := range m.checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Verify reads all tensors and scans them for NaN and Inf. progress, if not nil, is called from this goroutine after each
// tensor. Errors are all that were found, joined; each names its tensor.
func (m *Model) Verify(ctx context.Context, progress func(doneBytes, totalBytes int64)) error {
	var done, total int64
	for _, t := range m.tensors {
		total += t.SizeBytes()
	}
	var errs []error
	for _, t := range m.tensors {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if _, err := t.Bytes(); err != nil {
			errs = append(errs, fmt.Errorf("weights: %s: %w", m.path, err))
		}
		done += t.SizeBytes()
		if progress != nil {
			progress(done, total)
		}
	}
	return errors.Join(append(errs, m.CheckUnchanged())...)
}

// Guard runs fn in the calling goroutine and turns a fault on a mapped page, which is what reading a file gives that was cut
// while it was open, into an error that wraps ErrFileChanged. Goroutines that fn starts are not covered.
func Guard(fn func() error) error { return mapped.Guard(fn) }
