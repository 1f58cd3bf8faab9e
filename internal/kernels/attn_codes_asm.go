//go:build (amd64 || arm64) && !purego

package kernels

import "unsafe"

// asFloats is the first of some 32-bit numbers as the kernels take it.
func asFloats(x []int32) *float32 { return (*float32)(unsafe.Pointer(&x[0])) }
