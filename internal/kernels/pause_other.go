//go:build !amd64 || purego

package kernels

// pause gives a spinning core a moment.
func pause() {}
