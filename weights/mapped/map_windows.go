package mapped

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapFile maps a file by a view, which outlives the handles that it was made by. Windows does not let a mapped file be cut.
func mapFile(f *os.File, sizeBytes int) ([]byte, error) {
	section, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(section)
	at, err := windows.MapViewOfFile(section, windows.FILE_MAP_READ, 0, 0, uintptr(sizeBytes))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), sizeBytes), nil // memory that Go does not own
}

func unmap(mapping []byte) error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(mapping))))
}

// forget takes pages out of the working set: unlocking pages that are not locked does that, and says that they were not.
func forget(pages []byte) {
	_ = windows.VirtualUnlock(uintptr(unsafe.Pointer(unsafe.SliceData(pages))), uintptr(len(pages)))
}
