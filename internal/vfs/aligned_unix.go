//go:build unix

package vfs

import "golang.org/x/sys/unix"

func mapBytes(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func unmapBytes(b []byte) { _ = unix.Munmap(b) }
