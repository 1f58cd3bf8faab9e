//go:build unix

package kernels

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePageBytes = 2 << 20

// MapHuge maps sizeBytes of zeroed memory from the start of a huge page on and asks the system for huge pages; the rest of
// mapping is only there to be given to Unmap.
func MapHuge(sizeBytes int) (data, mapping []byte, err error) {
	m, err := unix.Mmap(-1, 0, sizeBytes+hugePageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	skip := int(-uintptr(unsafe.Pointer(&m[0])) % hugePageBytes)
	adviseHuge(m[skip:])
	return m[skip : skip+sizeBytes], m, nil
}

// Unmap gives a mapping of MapHuge back; nothing may use it after.
func Unmap(mapping []byte) { _ = unix.Munmap(mapping) }

// GiveBack gives the memory of whole system pages of a mapping of MapHuge back to the system. Its address space stays; what it holds is
// undefined from then on.
func GiveBack(pages []byte) { _ = unix.Madvise(pages, unix.MADV_DONTNEED) }
