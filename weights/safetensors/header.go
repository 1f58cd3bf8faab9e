package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"terrace/weights/gguf"
)

const (
	maxHeaderBytes = 100_000_000
	maxTensors     = 1 << 18
	maxDims        = 8
	maxMembers     = 64 // of a tensor's object; the format has three
	maxDepth       = 16 // of values that nobody reads
	minEntryBytes  = 50 // `"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}`
)

func formatErrorf(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, gguf.ErrFormat)...)
}

// parse reads the header of a file from its bytes and checks that its tensors tile the data.
func (f *File) parse(file []byte) error {
	if len(file) < 8 {
		return formatErrorf("the file has %d bytes, too short for the length of a safetensors header", len(file))
	}
	n := binary.LittleEndian.Uint64(file)
	rest := file[8:]
	switch {
	case n > uint64(len(rest)):
		return formatErrorf("the header claims a length of %d bytes, past the end of the file (%d bytes remain)", n, len(rest))
	case n > maxHeaderBytes:
		return formatErrorf("the header has a length of %d bytes, the limit is %d", n, maxHeaderBytes)
	case n < 2:
		return formatErrorf("the header has a length of %d bytes, too short for a JSON object", n)
	}
	f.data = rest[n:]
	if err := f.decode(rest[:n]); err != nil {
		return formatErrorf("header: %v", err)
	}
	return f.checkRanges()
}

// checkRanges proves that the byte ranges cover the data from its first byte to its last, each once, and that each is as
// long as dtype and shape say.
func (f *File) checkRanges() error {
	order := make([]int, len(f.entries))
	for i := range f.entries {
		order[i] = i
		if err := f.entries[i].checkSize(); err != nil {
			return err
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &f.entries[a], &f.entries[b]
		return cmp.Or(cmp.Compare(x.begin, y.begin), cmp.Compare(x.end, y.end))
	})
	at := 0
	for _, i := range order {
		e := &f.entries[i]
		switch {
		case e.begin > at:
			return formatErrorf("tensor %q: data_offsets [%d, %d] leave a hole of %d bytes before it", e.Name, e.begin, e.end, e.begin-at)
		case e.begin < at:
			return formatErrorf("tensor %q: data_offsets [%d, %d] overlap another tensor that ends at %d", e.Name, e.begin, e.end, at)
		case e.end > len(f.data):
			return formatErrorf("tensor %q: data_offsets [%d, %d] lie past the end of the file (%d bytes of data): it is truncated", e.Name, e.begin, e.end, len(f.data))
		}
		at = e.end
	}
	if at != len(f.data) {
		return formatErrorf("%d extra bytes follow the last tensor at offset %d", len(f.data)-at, at)
	}
	return nil
}

// checkSize compares the length of the byte range with dtype and shape.
func (e *Entry) checkSize() error {
	bits, ok := dtypeBits[e.DType]
	if !ok {
		return formatErrorf("tensor %q: unknown dtype %q", e.Name, e.DType)
	}
	if e.begin > e.end {
		return formatErrorf("tensor %q: data_offsets [%d, %d] run backwards", e.Name, e.begin, e.end)
	}
	for _, n := range e.Shape {
		if n != 0 && bits > math.MaxInt/n {
			return formatErrorf("tensor %q: the size of shape %v overflows", e.Name, e.Shape)
		}
		bits *= n
	}
	if bits%8 != 0 || bits/8 != e.SizeBytes() {
		return formatErrorf("tensor %q: dtype %s and shape %v make %d bytes, data_offsets hold %d", e.Name, e.DType, e.Shape, bits/8, e.SizeBytes())
	}
	return nil
}
