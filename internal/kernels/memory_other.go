//go:build !unix && !windows

package kernels

func packedMemory(owner *Matrix, sizeBytes int) []byte { return make([]byte, sizeBytes) }

// MapHuge returns sizeBytes of the heap: this system maps no memory.
func MapHuge(sizeBytes int) (data, mapping []byte, err error) {
	data = make([]byte, sizeBytes)
	return data, data, nil
}

// Unmap leaves the memory to the collector.
func Unmap([]byte) {}

// GiveBack has nobody to give memory back to.
func GiveBack([]byte) {}
