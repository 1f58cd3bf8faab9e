//go:build !unix

package vfs

import (
	"path/filepath"
	"strings"
)

// SameDisk reports whether two paths lie on one volume.
func SameDisk(a, b string) bool {
	x, err := filepath.Abs(a)
	y, err2 := filepath.Abs(b)
	return err == nil && err2 == nil && strings.EqualFold(filepath.VolumeName(x), filepath.VolumeName(y))
}
