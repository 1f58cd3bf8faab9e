package gguf

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"terrace/internal/kernels/quant"
)

// entry describes a tensor in the header.
type entry struct {
	name   string
	kind   quant.Type
	shape  []int // outermost first
	offset uint64
	start  int // in the file, set by place
	size   int
}

// entries reads the n tensor descriptions.
func (c *cursor) entries(h *header, n int) {
	if c.err != nil {
		return
	}
	h.entries = make([]entry, 0, n)
	seen := make(map[string]struct{}, n)
	for range n {
		e := c.entry()
		if c.err != nil {
			return
		}
		if _, dup := seen[e.name]; dup {
			c.failf("duplicate tensor name %q", e.name)
			return
		}
		seen[e.name] = struct{}{}
		h.entries = append(h.entries, e)
	}
}

func (c *cursor) entry() (e entry) {
	e.name = string(c.text(maxKeyBytes, "tensor name"))
	dims := c.uint32("dimension count of a tensor")
	if c.err != nil {
		return e
	}
	if e.name == "" || !utf8.ValidString(e.name) {
		c.failf("tensor name %q is empty or no UTF-8", e.name)
		return e
	}
	if dims < 1 || dims > maxDims {
		c.failf("tensor %q has %d dimensions, want 1 to %d", e.name, dims, maxDims)
		return e
	}
	e.shape = make([]int, dims)
	for i := range e.shape {
		n := c.uint64("dimension of a tensor")
		if c.err == nil && (n == 0 || n > 1<<48) {
			c.failf("tensor %q: dimension %d has size %d, want 1 to 2^48", e.name, i, n)
		}
		e.shape[len(e.shape)-1-i] = int(n)
	}
	e.kind = quant.Type(c.uint32("type of a tensor"))
	e.offset = c.uint64("offset of a tensor")
	c.measure(&e)
	return e
}

// measure checks type and shape of an entry and computes its size.
func (c *cursor) measure(e *entry) {
	if c.err != nil {
		return
	}
	if !e.kind.Known() || e.kind.Internal() {
		c.failf("tensor %q has %s, which is not read here: %w", e.name, e.kind, ErrUnsupported)
		return
	}
	cols := e.shape[len(e.shape)-1]
	if cols%e.kind.BlockLen() != 0 {
		c.failf("tensor %q of type %s: row length %d is no multiple of the block length %d (shape %v)", e.name, e.kind, cols, e.kind.BlockLen(), e.shape)
		return
	}
	size, ok := mulInt(cols/e.kind.BlockLen(), e.kind.BlockBytes())
	for _, n := range e.shape[:len(e.shape)-1] {
		if ok {
			size, ok = mulInt(size, n)
		}
	}
	if _, fits := mulInt(size, e.kind.BlockLen()); !ok || !fits {
		c.failf("tensor %q: the size of shape %v overflows", e.name, e.shape)
		return
	}
	e.size = size
}

// place checks where the tensors lie: aligned, inside the file, one behind the other without overlap or hole (a type or shape
// that is not the one that was written shows there).
func (c *cursor) place(h *header) {
	for i := range h.entries {
		e := &h.entries[i]
		room := len(c.data) - h.dataStart // negative if the file ends inside the padding
		switch {
		case e.offset%uint64(h.alignment) != 0:
			c.failf("tensor %q: offset %d is no multiple of the alignment %d", e.name, e.offset, h.alignment)
			return
		case room < 0 || e.offset > uint64(room) || e.size > room-int(e.offset):
			c.failf("tensor %q: %d bytes at offset %d lie past the end of the file (%d bytes of data): it is truncated", e.name, e.size, e.offset, max(room, 0))
			return
		}
		e.start = h.dataStart + int(e.offset)
	}
	order := make([]*entry, len(h.entries))
	for i := range order {
		order[i] = &h.entries[i]
	}
	slices.SortFunc(order, func(a, b *entry) int { return cmp.Compare(a.start, b.start) })
	end := h.dataStart
	for i, e := range order {
		switch {
		case e.start < end:
			c.failf("tensors %q and %q overlap: offset %d lies inside %d bytes at %d", order[i-1].name, e.name, e.offset, order[i-1].size, order[i-1].offset)
			return
		case e.start > aligned(end, h.alignment):
			c.failf("tensor %q: offset %d leaves a hole of %d bytes that no tensor owns", e.name, e.offset, e.start-end)
			return
		}
		end = e.start + e.size
	}
	rest := c.data[min(end, len(c.data)):]
	for i, b := range rest[:min(len(rest), maxTailBytes)] {
		if b != 0 {
			c.failf("the last tensor ends at byte %d, but byte %d is not zero: something that no tensor owns follows", end, end+i)
			return
		}
	}
}

// maxTailBytes is how much of what follows the last tensor is looked at; it must be zero, as padding is. Were it not, the last
// tensor could lose half of its bytes to a changed type without anyone noticing.
const maxTailBytes = 4096

// aligned rounds up to a multiple of a power of two.
func aligned(n, alignment int) int { return n + (-n & (alignment - 1)) }
