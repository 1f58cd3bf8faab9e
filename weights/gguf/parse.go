package gguf

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// header is what the front of a file says.
type header struct {
	version   uint32
	meta      *Meta
	alignment int
	entries   []entry
	dataStart int
}

const magic = "GGUF"

// parse reads the header of a file from its bytes. Only the header is touched.
func parse(data []byte) (*header, error) {
	c := &cursor{data: data}
	h := &header{meta: &Meta{}}
	c.magic(h)
	tensors := c.uint64("tensor count")
	pairs := c.uint64("metadata key count")
	if c.err == nil && tensors > uint64(min(maxTensors, c.left()/minTensorBytes)) {
		c.failf("tensor count %d is more than the %d bytes that remain can describe, or than the limit %d", tensors, c.left(), maxTensors)
	}
	if c.err == nil && pairs > uint64(c.left()/minPairBytes) {
		c.failf("metadata key count %d is more than the %d bytes that remain can hold", pairs, c.left())
	}
	for i := uint64(0); i < pairs && c.err == nil; i++ {
		c.pair(h.meta)
	}
	h.alignment = c.alignment(h.meta)
	c.entries(h, int(tensors))
	if c.err == nil {
		h.dataStart = aligned(c.at, h.alignment)
		c.place(h)
	}
	return h, c.err
}

func (c *cursor) magic(h *header) {
	if len(c.data) == 0 {
		c.failf("the file is empty, want the magic %q", magic)
		return
	}
	got := c.take(4, "magic")
	if c.err == nil && string(got) != magic {
		if string(got) == "FUGG" {
			c.failf("magic %q: a big-endian file: %w", got, ErrUnsupported)
			return
		}
		c.failf("magic %q, want %q: not a GGUF file", got, magic)
	}
	v := c.uint32("version")
	switch {
	case c.err != nil:
	case v == 2 || v == 3:
		h.version = v
	case bits.ReverseBytes32(v) <= 3 && v != 0:
		c.failf("version %d in big-endian byte order: %w", bits.ReverseBytes32(v), ErrUnsupported)
	default:
		c.failf("version %d, want 2 or 3: %w", v, ErrUnsupported)
	}
}

// pair reads one metadata key with its value.
func (c *cursor) pair(m *Meta) {
	raw := c.text(maxKeyBytes, "metadata key")
	if c.err != nil {
		return
	}
	key := string(raw)
	switch {
	case key == "" || !utf8.ValidString(key):
		c.failf("metadata key %q is empty or no UTF-8", key)
		return
	case m.Has(key):
		c.failf("duplicate metadata key %q", key)
		return
	}
	if v := c.value(key); v != nil {
		m.put(key, v)
	}
}

func (c *cursor) value(key string) *value {
	kind := valueKind(c.uint32("type of metadata key"))
	switch {
	case c.err != nil:
		return nil
	case kind >= kinds:
		c.failf("metadata key %q has value type %d, want 0 to %d", key, uint32(kind), kinds-1)
		return nil
	case kind == kindString:
		if text := c.text(maxStringBytes, fmt.Sprintf("string of key %q", key)); c.err == nil {
			return &value{kind: kind, text: string(text)}
		}
		return nil
	case kind == kindArray:
		return c.array(key)
	}
	raw := c.take(kindBytes[kind], "value of a metadata key")
	if c.err != nil {
		return nil
	}
	var word [8]byte
	copy(word[:], raw)
	v := &value{kind: kind, bits: binary.LittleEndian.Uint64(word[:])}
	if kind == kindBool && v.bits > 1 {
		c.failf("metadata key %q: bool is %d, want 0 or 1", key, v.bits)
	}
	return v
}

// array reads an array value; its items are checked now and decoded when asked for.
func (c *cursor) array(key string) *value {
	v := &value{kind: kindArray, elem: valueKind(c.uint32("item type of an array"))}
	n := c.uint64("length of an array")
	if c.err != nil {
		return nil
	}
	if v.elem >= kinds || v.elem == kindArray {
		c.failf("metadata key %q: array of %s: nested arrays and unknown item types are refused", key, v.elem)
		return nil
	}
	itemBytes := kindBytes[v.elem]
	if v.elem == kindString {
		itemBytes = 8 // at least its length
	}
	if n > uint64(c.left()/itemBytes) {
		c.failf("metadata key %q: array length %d of %s is more than the %d bytes that remain", key, n, v.elem, c.left())
		return nil
	}
	v.n = int(n)
	start := c.at
	if v.elem == kindString {
		c.skipStrings(key, v.n)
	} else {
		c.at += v.n * itemBytes
	}
	if c.err != nil {
		return nil
	}
	v.text = string(c.data[start:c.at])
	if v.elem == kindBool {
		for i := range v.n {
			if v.text[i] > 1 {
				c.failf("metadata key %q: bool item %d is %d, want 0 or 1", key, i, v.text[i])
				return nil
			}
		}
	}
	return v
}

// skipStrings checks the n strings of an array and moves behind them. It is the hot loop of opening a model with a large
// vocabulary.
func (c *cursor) skipStrings(key string, n int) {
	at := c.at
	for i := range n {
		if len(c.data)-at < 8 {
			c.failf("key %q: item %d of %d strings: the file is truncated", key, i, n)
			return
		}
		size := binary.LittleEndian.Uint64(c.data[at:])
		at += 8
		if size > uint64(len(c.data)-at) {
			c.failf("key %q: item %d claims a string length of %d bytes, only %d remain", key, i, size, len(c.data)-at)
			return
		}
		if size > maxStringBytes {
			c.failf("key %q: item %d has a string length of %d bytes, the limit is %d", key, i, size, maxStringBytes)
			return
		}
		at += int(size)
	}
	c.at = at
}

// alignment reads general.alignment.
func (c *cursor) alignment(m *Meta) int {
	const key = "general.alignment"
	if c.err != nil || !m.Has(key) {
		return defaultAlign
	}
	n, err := m.Int(key)
	if err != nil {
		c.failf("%w", err)
		return defaultAlign
	}
	if n < minAlignment || n > maxAlignment || n&(n-1) != 0 {
		c.failf("%s is %d, want a power of two from %d to %d", key, n, minAlignment, maxAlignment)
		return defaultAlign
	}
	return n
}
