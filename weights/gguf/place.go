package gguf

// place is where the bytes of a tensor lie in a file, as they are.
type place struct {
	path   string
	offset int64
}

// At notes where the tensor's bytes lie as they are, one behind another, and returns the tensor.
func (t *Tensor) At(path string, offset int64) *Tensor {
	t.place = place{path, offset}
	return t
}

// Where is the file, and the offset in it in bytes, of rows [row, row+rows) of the tensor. ok is false where they are computed, or do
// not lie together.
func (t *Tensor) Where(row, rows int) (path string, offset int64, ok bool) {
	if t.parts != nil {
		each := t.parts[0].Rows()
		if row/each != (row+rows-1)/each {
			return "", 0, false
		}
		return t.parts[row/each].Where(row%each, rows)
	}
	return t.place.path, t.place.offset + int64(row)*int64(t.Type.RowBytes(t.Cols())), t.place.path != ""
}

// ReadThrough has the tensor's bytes read at each use from then on, into memory of the caller's: none is kept. Tensors whose place
// is not known, and those made of others, are left as they are. It comes before the first use.
func (t *Tensor) ReadThrough(read func(path string, p []byte, offset int64) error) {
	for _, p := range t.parts {
		p.ReadThrough(read)
	}
	t.lent = true
	if t.place.path == "" {
		return
	}
	t.readAt = read
	t.load = func() ([]byte, error) {
		data := make([]byte, t.SizeBytes())
		return data, read(t.place.path, data, t.place.offset)
	}
}
