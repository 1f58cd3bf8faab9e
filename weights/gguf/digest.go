package gguf

import (
	"encoding/binary"
	"io"
	"slices"
)

// WriteTo writes all keys and values in one order and form, so that equal metadata gives equal bytes: for fingerprints.
func (m *Meta) WriteTo(w io.Writer) (int64, error) {
	var b []byte
	text := func(s string) { b = append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...) }
	for _, key := range slices.Sorted(slices.Values(m.keys)) {
		v := m.values[key]
		text(key)
		for _, n := range [...]uint64{uint64(v.kind), uint64(v.elem), v.bits, uint64(v.n)} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		text(v.text)
	}
	n, err := w.Write(b)
	return int64(n), err
}
