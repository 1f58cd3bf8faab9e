package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"terrace/internal/kernels/quant"
)

// Info describes a tensor that is to be written.
type Info struct {
	Name  string
	Type  quant.Type
	Shape []int // outermost first
}

// SizeBytes is the number of bytes of all blocks.
func (i Info) SizeBytes() int64 {
	size := int64(i.Type.BlockBytes()) * int64(i.Shape[len(i.Shape)-1]/i.Type.BlockLen())
	for _, n := range i.Shape[:len(i.Shape)-1] {
		size *= int64(n)
	}
	return size
}

// Writer writes a GGUF file of version 3 front to back, so that no tensor needs to be in memory as a whole.
type Writer struct {
	w     io.Writer
	infos []Info
	next  int   // tensor whose bytes come next
	left  int64 // bytes that it still needs
}

// ErrOrder is returned by a Writer for more or fewer bytes than the announced tensors have.
var ErrOrder = errors.New("tensor bytes do not match what was announced")

// NewWriter writes the header for the metadata and the tensors, whose bytes must then be written in the order of infos. The
// alignment is 32: a general.alignment of the metadata is left out.
func NewWriter(w io.Writer, meta *Meta, infos []Info) (*Writer, error) {
	keys := meta.Keys()
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(infos)))
	counted := 0
	for _, key := range keys {
		if key != "general.alignment" {
			counted++
		}
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(counted))
	for _, key := range keys {
		if key != "general.alignment" {
			b = appendText(b, key)
			b = meta.values[key].append(b)
		}
	}
	offset := int64(0)
	for _, t := range infos {
		if err := t.validate(); err != nil {
			return nil, err
		}
		b = appendText(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
		for i := range t.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(t.Shape[len(t.Shape)-1-i]))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
		b = binary.LittleEndian.AppendUint64(b, uint64(offset))
		offset += t.SizeBytes() + padding(t.SizeBytes())
	}
	b = append(b, make([]byte, padding(int64(len(b))))...)
	if _, err := w.Write(b); err != nil {
		return nil, fmt.Errorf("gguf: write: %w", err)
	}
	out := &Writer{w: w, infos: infos}
	if len(infos) > 0 {
		out.left = infos[0].SizeBytes()
	}
	return out, nil
}

// validate refuses what a reader would.
func (i Info) validate() error {
	if i.Name == "" || len(i.Name) > maxKeyBytes || !i.Type.Known() || len(i.Shape) < 1 || len(i.Shape) > maxDims {
		return fmt.Errorf("gguf: tensor %q of %s with shape %v cannot be written: %w", i.Name, i.Type, i.Shape, ErrFormat)
	}
	for _, n := range i.Shape {
		if n < 1 {
			return fmt.Errorf("gguf: tensor %q: shape %v: %w", i.Name, i.Shape, ErrFormat)
		}
	}
	if cols := i.Shape[len(i.Shape)-1]; cols%i.Type.BlockLen() != 0 {
		return fmt.Errorf("gguf: tensor %q: rows of %d are no whole blocks of %s: %w", i.Name, cols, i.Type, ErrFormat)
	}
	return nil
}

// Write takes the next bytes of the current tensor; a tensor that is complete is padded and the next one becomes current.
// Bytes of two tensors must not come in one call.
func (w *Writer) Write(p []byte) (int, error) {
	if w.next >= len(w.infos) || int64(len(p)) > w.left {
		return 0, fmt.Errorf("gguf: write: tensor %d: %d bytes too many: %w", w.next, int64(len(p))-w.left, ErrOrder)
	}
	n, err := w.w.Write(p)
	if err != nil {
		return n, fmt.Errorf("gguf: write: tensor %q: %w", w.infos[w.next].Name, err)
	}
	if w.left -= int64(n); w.left > 0 {
		return n, nil
	}
	if _, err := w.w.Write(make([]byte, padding(w.infos[w.next].SizeBytes()))); err != nil {
		return n, fmt.Errorf("gguf: write: %w", err)
	}
	if w.next++; w.next < len(w.infos) {
		w.left = w.infos[w.next].SizeBytes()
	}
	return n, nil
}

// Close checks that every tensor is complete; it closes nothing.
func (w *Writer) Close() error {
	if w.next != len(w.infos) {
		return fmt.Errorf("gguf: write: tensor %q lacks %d bytes: %w", w.infos[w.next].Name, w.left, ErrOrder)
	}
	return nil
}

func padding(size int64) int64 { return -size & (defaultAlign - 1) }

func appendText(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

// append encodes a value with its type.
func (v *value) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(v.kind))
	switch v.kind {
	case kindString:
		return appendText(b, v.text)
	case kindArray:
		b = binary.LittleEndian.AppendUint32(b, uint32(v.elem))
		b = binary.LittleEndian.AppendUint64(b, uint64(v.n))
		if v.elem != kindString || v.text != "" || v.n == 0 {
			return append(b, v.text...)
		}
		for _, s := range v.strings {
			b = appendText(b, s)
		}
		return b
	}
	return appendScalar(b, v.kind, v.bits)
}
