//go:build !unix

package kernels

func packedMemory(owner *Matrix, sizeBytes int) []byte { return make([]byte, sizeBytes) }
