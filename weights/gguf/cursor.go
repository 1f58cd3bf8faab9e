package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Limits of what is believed of an untrusted file.
const (
	maxKeyBytes     = 64 << 10
	maxStringBytes  = 16 << 20
	maxTensors      = 1 << 20
	maxDims         = 4
	minAlignment    = 8
	maxAlignment    = 64 << 10
	defaultAlign    = 32
	minTensorBytes  = 8 + 4 + 8 + 4 + 8 // an entry with an empty name and one dimension
	minPairBytes    = 8 + 4 + 1         // a pair with an empty key and a one-byte value
	maxMetaCapacity = 4096              // pairs that room is made for before they are seen
)

// cursor reads the header of a file. The first failure sticks: what follows reads zeros.
type cursor struct {
	data []byte
	at   int
	err  error
}

func (c *cursor) left() int { return len(c.data) - c.at }

func (c *cursor) failf(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("at byte %d: "+format+": %w", append(append([]any{c.at}, args...), ErrFormat)...)
	}
}

// take returns the next n bytes, nil after a failure.
func (c *cursor) take(n int, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n > c.left() {
		c.failf("%s needs %d bytes, only %d remain: the file is truncated", what, n, c.left())
		return nil
	}
	c.at += n
	return c.data[c.at-n : c.at]
}

func (c *cursor) uint32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text returns the bytes of a string of at most limit bytes, in place.
func (c *cursor) text(limit int, what string) []byte {
	n := c.uint64("length of " + what)
	if c.err != nil {
		return nil
	}
	if n > uint64(c.left()) {
		c.failf("%s claims a length of %d bytes, only %d remain", what, n, c.left())
		return nil
	}
	if n > uint64(limit) {
		c.failf("%s has a length of %d bytes, the limit is %d", what, n, limit)
		return nil
	}
	return c.take(int(n), what)
}

// mulInt multiplies two non-negative numbers; ok is false if the product does not fit.
func mulInt(a, b int) (int, bool) {
	if a != 0 && b > math.MaxInt/a {
		return 0, false
	}
	return a * b, true
}
