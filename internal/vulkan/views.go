package vulkan

import "unsafe"

// Floats are bytes as the float32 that they hold; what is left over is not seen.
func Floats(b []byte) []float32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

// Bytes are 32-bit numbers as a device has them.
func Bytes[T float32 | int32 | uint32](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))
}

// Ints are the bits of float32 as the integers that a kernel wrote.
func Ints(x []float32) []int32 {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(&x[0])), len(x))
}
