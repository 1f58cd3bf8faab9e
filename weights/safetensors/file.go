package safetensors

import (
	"errors"
	"fmt"

	"terrace/weights/gguf"
	"terrace/weights/mapped"
)

// Entry describes a tensor of any dtype.
type Entry struct {
	Name  string
	DType string // as in the file: "F32", "I64", …
	Shape []int  // empty = a scalar
	begin int    // of its bytes in the file's data
	end   int
}

// SizeBytes is the number of bytes of the tensor.
func (e *Entry) SizeBytes() int { return e.end - e.begin }

// File is an open safetensors file. Its tensors' bytes lie in the mapping: they must not be used after Close.
type File struct {
	mapping *mapped.File
	entries []Entry
	byName  map[string]int
	data    []byte
	tensors []*gguf.Tensor
}

// Open maps a file and reads its header; the data is not touched. Errors wrap gguf.ErrFormat, mapped.ErrNotRegular,
// mapped.ErrChanged or those of the system, and name the file.
func Open(path string) (*File, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{mapping: m}
	if err := mapped.Guard(func() error { return f.parse(m.Bytes()) }); err != nil {
		return nil, errors.Join(fmt.Errorf("safetensors: %s: %w", path, err), m.Close())
	}
	for i := range f.entries {
		e := &f.entries[i]
		if kind, ok := floatTypes[e.DType]; ok && len(e.Shape) > 0 {
			data := f.data[e.begin:e.end:e.end]
			f.tensors = append(f.tensors, gguf.NewTensor(e.Name, kind, e.Shape, func() ([]byte, error) { return data, nil }).At(path, f.dataStart()+int64(e.begin)))
		}
	}
	return f, nil
}

// dataStart is the offset of the tensors' bytes in the file.
func (f *File) dataStart() int64 { return f.mapping.SizeBytes() - int64(len(f.data)) }

// Path is the name the file was opened by.
func (f *File) Path() string { return f.mapping.Path() }

// Entries lists all tensors in the order of the header.
func (f *File) Entries() []Entry { return f.entries }

// Entry is the tensor of a name.
func (f *File) Entry(name string) (e Entry, ok bool) {
	i, ok := f.byName[name]
	if ok {
		e = f.entries[i]
	}
	return e, ok
}

// Tensors lists the tensors that can be weights: F32, F16 and BF16 of at least one dimension, in the order of the header.
func (f *File) Tensors() []*gguf.Tensor { return f.tensors }

// Bytes returns the bytes of a tensor of any dtype, unscanned; nil if there is none of that name.
func (f *File) Bytes(name string) []byte {
	i, ok := f.byName[name]
	if !ok {
		return nil
	}
	e := &f.entries[i]
	return f.data[e.begin:e.end:e.end]
}

// SizeBytes is the size of the file.
func (f *File) SizeBytes() int64 { return f.mapping.SizeBytes() }

// CheckUnchanged compares the file at the path with the one opened; errors wrap mapped.ErrChanged.
func (f *File) CheckUnchanged() error { return f.mapping.CheckUnchanged() }

// Close unmaps the file.
func (f *File) Close() error { return f.mapping.Close() }
