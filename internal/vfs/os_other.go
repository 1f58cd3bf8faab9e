//go:build !linux

package vfs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
)

const directFlag = 0

func refusesDirect(error) bool { return false }

func directAlignment(*os.File) (int, error) { return 0, ErrNoDirect }

// FreeBytes is not known on this system: no limit.
func (OS) FreeBytes(dir string) (int64, error) { return math.MaxInt64, nil }

// Preallocate makes the file long enough; blocks are reserved as they are written.
func (f *osFile) Preallocate(size int64) error {
	if err := f.Truncate(size); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: %w", err, ErrNoSpace)
		}
		return fmt.Errorf("vfs: %s: reserving %d bytes: %w", f.Name(), size, err)
	}
	return nil
}

// PunchHole is not available on this system.
func (f *osFile) PunchHole(off, size int64) error { return errors.ErrUnsupported }

// ReadVecAt reads buffer by buffer.
func (f *osFile) ReadVecAt(bufs [][]byte, off int64) (int, error) { return vecAt(f.ReadAt, bufs, off) }

// WriteVecAt writes buffer by buffer.
func (f *osFile) WriteVecAt(bufs [][]byte, off int64) (int, error) {
	return vecAt(f.WriteAt, bufs, off)
}
