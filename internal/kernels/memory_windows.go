package kernels

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// MapHuge returns sizeBytes of zeroed memory outside the Go heap, in pages of the usual size: large ones need a privilege here that
// users do not have.
func MapHuge(sizeBytes int) (data, mapping []byte, err error) {
	at, err := windows.VirtualAlloc(0, uintptr(sizeBytes), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, nil, err
	}
	m := unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), sizeBytes) // memory that Go does not own, at an address that is no number any more
	return m, m, nil
}

// Unmap gives a mapping of MapHuge back; nothing may use it after.
func Unmap(mapping []byte) {
	_ = windows.VirtualFree(uintptr(unsafe.Pointer(unsafe.SliceData(mapping))), 0, windows.MEM_RELEASE)
}

// GiveBack tells the system that what whole system pages of a mapping of MapHuge hold is not needed: it takes their memory when
// another asks for it. Their address space stays; what they hold is undefined from then on.
func GiveBack(pages []byte) {
	_, _ = windows.VirtualAlloc(uintptr(unsafe.Pointer(unsafe.SliceData(pages))), uintptr(len(pages)), windows.MEM_RESET, windows.PAGE_READWRITE)
}
