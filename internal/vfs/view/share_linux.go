package view

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// shareSeals keep the size of shared memory: who maps it cannot be made to fault by who made it.
const shareSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Share makes memory that another process can have too, by the file: zeros that can be written, and never change their size. The
// file may be closed once it was handed over.
func Share(bytes int64) (*View, *os.File, error) {
	fd, err := unix.MemfdCreate("terrace", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("memory to share: %w", err)
	}
	f := os.NewFile(uintptr(fd), "shared memory")
	if err = f.Truncate(bytes); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, shareSeals)
	}
	var v *View
	if err == nil {
		v, err = mapped(fd, bytes, unix.PROT_READ|unix.PROT_WRITE)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("memory to share: %w", err), f.Close())
	}
	return v, f, nil
}

// Shared is memory that another process made with Share, of that size. Anything else is refused: it could be cut while it is in use.
func Shared(f *os.File, bytes int64) (*View, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	if seals&shareSeals != shareSeals || info.Size() != bytes {
		return nil, fmt.Errorf("shared memory of %d bytes with seals %#x, want %d bytes and %#x: %w", info.Size(), seals, bytes, shareSeals, unix.EINVAL)
	}
	return mapped(int(f.Fd()), bytes, unix.PROT_READ|unix.PROT_WRITE)
}
