package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/google/renameio/v2"
)

// Writer writes a safetensors file tensor after tensor; the file appears under its name only at Close.
type Writer struct {
	file *renameio.PendingFile
	path string
	left int // bytes of tensors still to come
	buf  []byte
}

// Create starts a file with the given tensors (Name, DType and Shape of each); their data follows in that order.
func Create(path string, entries []Entry) (*Writer, error) {
	type field struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header, at := map[string]field{}, 0
	for _, e := range entries {
		bits, ok := dtypeBits[e.DType]
		if !ok {
			return nil, fmt.Errorf("safetensors: %s: tensor %q has dtype %q, which the format does not have", path, e.Name, e.DType)
		}
		if _, dup := header[e.Name]; dup {
			return nil, fmt.Errorf("safetensors: %s: tensor %q is given twice", path, e.Name)
		}
		n := 1
		for _, d := range e.Shape {
			n *= d
		}
		header[e.Name] = field{e.DType, append([]int{}, e.Shape...), [2]int{at, at + n*bits/8}}
		at += n * bits / 8
	}
	raw, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	for len(raw)%8 != 0 {
		raw = append(raw, ' ')
	}
	file, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	w := &Writer{file: file, path: path, left: at}
	if _, err := file.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...)); err != nil {
		w.Abort()
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	return w, nil
}

// Write adds bytes of the tensors in file order.
func (w *Writer) Write(b []byte) (int, error) {
	if len(b) > w.left {
		return 0, fmt.Errorf("safetensors: %s: %d bytes more than the tensors hold", w.path, len(b)-w.left)
	}
	n, err := w.file.Write(b)
	w.left -= n
	if err != nil {
		err = fmt.Errorf("safetensors: %s: %w", w.path, err)
	}
	return n, err
}

// WriteFloat32s adds numbers of an F32 tensor.
func (w *Writer) WriteFloat32s(x []float32) error {
	w.buf = w.buf[:0]
	for _, v := range x {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, math.Float32bits(v))
	}
	_, err := w.Write(w.buf)
	return err
}

// Close makes the file visible; one whose tensors are not complete is an error and leaves nothing behind.
func (w *Writer) Close() error {
	if w.left != 0 {
		w.Abort()
		return fmt.Errorf("safetensors: %s: %d bytes of the tensors were never written", w.path, w.left)
	}
	if err := w.file.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("safetensors: %s: %w", w.path, err)
	}
	return nil
}

// Abort removes what was written; after Close it does nothing.
func (w *Writer) Abort() { _ = w.file.Cleanup() }
