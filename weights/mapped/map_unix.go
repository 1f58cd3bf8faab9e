//go:build unix

package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, sizeBytes int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, sizeBytes, unix.PROT_READ, unix.MAP_SHARED)
}

func unmap(mapping []byte) error { return unix.Munmap(mapping) }

// forget is advice only; the mapping is shared and read-only.
func forget(pages []byte) { _ = unix.Madvise(pages, unix.MADV_DONTNEED) }
