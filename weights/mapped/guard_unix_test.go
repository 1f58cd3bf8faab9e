//go:build unix

package mapped

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGuardLeavesOtherFaults reads lost pages of a file that this package did not open: no model file has changed.
func TestGuardLeavesOtherFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, make([]byte, 1<<16))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Munmap(data); err != nil {
			t.Error(err)
		}
	}()
	write(t, path, nil)
	defer func() {
		if r := recover(); r == nil {
			t.Error("the fault is gone")
		}
	}()
	sum := byte(0)
	err = Guard(func() error {
		for _, b := range data {
			sum += b
		}
		return nil
	})
	t.Errorf("a fault elsewhere became %v", err)
}
