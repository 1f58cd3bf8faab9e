//go:build !amd64 || purego

package kernels

// pause gives a spinning core a moment.
func pause() {}

// ownRows and ownBytes have no instruction here.
func ownRows(x []float32, n, stride, width int) {}

func ownBytes(b []byte) {}

// Fetch asks for the bytes of b for reading: a hint that they are wanted soon, which has no instruction here.
func Fetch(b []byte) {}
