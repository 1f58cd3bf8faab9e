package vfs

import (
	"fmt"
	"os"
	"reflect"
)

// AlignedBytes maps n bytes of fresh zeroed memory whose address is a multiple of the system's page size, outside Go's
// heap; cap is n rounded up to whole pages. It panics where the system has no memory left, as make does. FreeAligned gives
// it back.
func AlignedBytes(n int) []byte {
	page := os.Getpagesize()
	b, err := mapBytes((max(n, 1) + page - 1) / page * page)
	if err != nil {
		panic(fmt.Sprintf("vfs: no memory for %d bytes: %v", n, err))
	}
	return b[:n]
}

// FreeAligned gives memory from AlignedBytes back; b must begin where it began. A nil slice is ignored.
func FreeAligned(b []byte) {
	if cap(b) > 0 {
		unmapBytes(b[:cap(b)])
	}
}

// Aligned says whether a slice's address is a multiple of n, a power of two.
func Aligned(b []byte, n int) bool {
	return len(b) == 0 || reflect.ValueOf(b).Pointer()&uintptr(n-1) == 0
}
