//go:build amd64 && !purego

package kernels

import (
	"unsafe"

	"terrace/internal/kernels/amd64/avx2"
)

// pause gives a spinning core a moment: about 100 ns or less. PAUSE itself needs no AVX2.
func pause() { avx2.Pause(2) }

// ownRows asks for the lines of n rows of x, stride numbers apart and width wide, for writing: what another core wrote or
// read last is on its way while this one computes what to write. A hint that changes nothing; x may be anything not empty.
func ownRows(x []float32, n, stride, width int) {
	avx2.Own((*byte)(unsafe.Pointer(&x[0])), uintptr(stride)*4, n, width*4)
}

// ownBytes is ownRows for a run of bytes.
func ownBytes(b []byte) { avx2.Own(&b[0], 0, 1, len(b)) }

// Fetch asks for the bytes of b, which is not empty, for reading: a hint that they are wanted soon.
func Fetch(b []byte) { avx2.Fetch(&b[0], len(b)) }
