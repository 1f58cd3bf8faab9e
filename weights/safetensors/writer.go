package safetensors

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"terrace/internal/replace"
	"terrace/weights/gguf"
)

// ErrOrder is returned by a Writer for more or fewer bytes than the announced tensors have.
var ErrOrder = errors.New("tensor bytes do not match what was announced")

// Writer writes a file front to back, so that no tensor needs to be in memory as a whole. The file appears under its name at
// Close; Abort leaves nothing behind.
type Writer struct {
	file *replace.File
	buf  *bufio.Writer
	left int64
	err  error
	raw  []byte
}

// Create starts a file of the given tensors (Name, DType and Shape are read), whose values must then be written in that
// order, row-major. Errors wrap gguf.ErrFormat (a name twice, an unknown dtype, a shape below 0) or those of the system.
func Create(path string, tensors []Entry) (*Writer, error) {
	header, size, err := encodeHeader(tensors)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	file, err := replace.New(path, 0o644)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	w := &Writer{file: file, buf: bufio.NewWriterSize(file, 1<<16), left: size}
	if _, err := w.buf.Write(header); err != nil {
		return nil, errors.Join(fmt.Errorf("safetensors: %s: %w", path, err), file.Cleanup())
	}
	return w, nil
}

// Write takes the next bytes; they may cross from one tensor to the next.
func (w *Writer) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left && w.err == nil {
		w.err = fmt.Errorf("safetensors: %d bytes too many: %w", int64(len(p))-w.left, ErrOrder)
	}
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.buf.Write(p)
	w.left -= int64(n)
	if err != nil {
		w.err = fmt.Errorf("safetensors: write: %w", err)
	}
	return n, w.err
}

// WriteFloat32s takes the next values of F32 tensors.
func (w *Writer) WriteFloat32s(x []float32) error {
	w.raw = w.raw[:0]
	for _, v := range x {
		w.raw = binary.LittleEndian.AppendUint32(w.raw, math.Float32bits(v))
	}
	_, err := w.Write(w.raw)
	return err
}

// Close checks that every tensor is complete and gives the file its name.
func (w *Writer) Close() error {
	if w.err == nil && w.left > 0 {
		w.err = fmt.Errorf("safetensors: %d bytes are missing: %w", w.left, ErrOrder)
	}
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	if w.err == nil {
		w.err = w.file.CloseAtomicallyReplace()
	}
	if w.err != nil {
		return errors.Join(w.err, w.file.Cleanup())
	}
	return nil
}

// Abort removes what was written, unless Close has succeeded.
func (w *Writer) Abort() { _ = w.file.Cleanup() }

// encodeHeader lays the tensors out one after the other and returns length word, JSON and padding to 8 bytes.
func encodeHeader(tensors []Entry) (header []byte, dataBytes int64, err error) {
	var b strings.Builder
	seen := map[string]bool{}
	at := 0
	for i, t := range tensors {
		if seen[t.Name] || t.Name == "__metadata__" {
			return nil, 0, fmt.Errorf("tensor name %q is taken: %w", t.Name, gguf.ErrFormat)
		}
		seen[t.Name] = true
		bits, ok := dtypeBits[t.DType]
		if !ok {
			return nil, 0, fmt.Errorf("tensor %q: unknown dtype %q: %w", t.Name, t.DType, gguf.ErrFormat)
		}
		for _, n := range t.Shape {
			if n < 0 || n > 0 && bits > math.MaxInt/n {
				return nil, 0, fmt.Errorf("tensor %q: shape %v: %w", t.Name, t.Shape, gguf.ErrFormat)
			}
			bits *= n
		}
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, 0, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		shape, err := json.Marshal(append([]int{}, t.Shape...))
		if err != nil {
			return nil, 0, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		fmt.Fprintf(&b, `%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, t.DType, shape, at, at+bits/8)
		at += bits / 8
	}
	if len(tensors) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	header = binary.LittleEndian.AppendUint64(nil, uint64(b.Len()))
	return append(header, b.String()...), int64(at), nil
}
