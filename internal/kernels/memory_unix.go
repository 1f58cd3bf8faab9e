//go:build unix

package kernels

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// packedMemory is where packed weights live: mapped outside the Go heap, so that the collector neither scans it nor
// sizes the heap by it, and given back when the matrix is collected. Large tiles ask for huge pages: a product walks
// the weights once a token, and 4 KiB pages cost a walk of the page table each 4 KiB. Falls back to the heap.
func packedMemory(owner *Matrix, sizeBytes int) []byte {
	b, err := unix.Mmap(-1, 0, sizeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, sizeBytes)
	}
	adviseHuge(b)
	runtime.AddCleanup(owner, func(b []byte) { _ = unix.Munmap(b) }, b)
	return b
}
