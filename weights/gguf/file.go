package gguf

import (
	"errors"
	"fmt"

	"terrace/weights/mapped"
)

// File is an open GGUF file. Its tensors' bytes lie in the mapping: they must not be used after Close.
type File struct {
	mapping *mapped.File
	header  *header
	tensors []*Tensor
}

// Open maps a GGUF file and reads its header; the tensors' data is not touched. Errors wrap ErrFormat, ErrUnsupported,
// mapped.ErrNotRegular, mapped.ErrChanged or those of the system.
func Open(path string) (*File, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{mapping: m}
	err = mapped.Guard(func() (err error) {
		f.header, err = parse(m.Bytes())
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gguf: %s: %w", path, err), m.Close())
	}
	for i := range f.header.entries {
		e := &f.header.entries[i]
		data := m.Bytes()[e.start : e.start+e.size : e.start+e.size]
		f.tensors = append(f.tensors, NewTensor(e.name, e.kind, e.shape, func() ([]byte, error) { return data, nil }).At(path, int64(e.start)))
	}
	return f, nil
}

// Meta returns the metadata, which does not depend on the file staying open.
func (f *File) Meta() *Meta { return f.header.meta }

// Tensors lists the tensors in file order.
func (f *File) Tensors() []*Tensor { return f.tensors }

// SizeBytes is the size of the file.
func (f *File) SizeBytes() int64 { return f.mapping.SizeBytes() }

// CheckUnchanged compares the file at the path with the one opened; errors wrap mapped.ErrChanged.
func (f *File) CheckUnchanged() error { return f.mapping.CheckUnchanged() }

// Unmap gives the mapping up, after which tensors' bytes come from elsewhere (Tensor.ReadThrough); metadata stays.
func (f *File) Unmap() error { return f.mapping.Close() }

// Close unmaps the file.
func (f *File) Close() error { return f.mapping.Close() }
