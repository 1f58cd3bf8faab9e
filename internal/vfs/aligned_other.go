//go:build !unix

package vfs

func mapBytes(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapBytes([]byte) {}
