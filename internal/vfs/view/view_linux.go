package view

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Map shows the first bytes of a file for reading, as many as are asked for or as the file will have. They take memory as they are
// touched, which is the kernel's to take back.
func Map(fd int, bytes int64) (*View, error) { return mapped(fd, bytes, unix.PROT_READ) }

func mapped(fd int, bytes int64, prot int) (*View, error) {
	if bytes < 1 || bytes > math.MaxInt {
		return nil, fmt.Errorf("mapping %d bytes: %w", bytes, unix.EINVAL)
	}
	b, err := unix.Mmap(fd, 0, int(bytes), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", bytes, err)
	}
	return &View{b}, nil
}

// Close ends the view; its bytes must not be used any more.
func (v *View) Close() error {
	err := unix.Munmap(v.bytes)
	v.bytes = nil
	if err != nil {
		return fmt.Errorf("unmapping: %w", err)
	}
	return nil
}
