//go:build unix

package vfs

import (
	"os"
	"path/filepath"
	"syscall"
)

// SameDisk reports whether two paths lie on one device of the system's, as far as it says so; of one that does not exist yet what lies
// above it counts.
func SameDisk(a, b string) bool {
	x, ok := device(a)
	y, also := device(b)
	return ok && also && x == y
}

func device(path string) (dev uint64, ok bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return 0, false
	}
	for {
		if info, err := os.Stat(path); err == nil {
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return 0, false
			}
			return uint64(st.Dev), true
		}
		above := filepath.Dir(path)
		if above == path {
			return 0, false
		}
		path = above
	}
}
