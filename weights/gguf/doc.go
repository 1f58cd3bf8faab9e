// Package gguf reads GGUF model files (versions 2 and 3, little-endian) and defines Meta and Tensor, the canonical metadata
// and tensors that every weight format is presented in.
//
// A file is hostile until proven otherwise. Every count is compared with the bytes left before memory is taken for it, every
// product and sum is checked, offsets must be aligned and inside the file, tensors one behind the other without overlap or
// hole; the header is copied out of the mapping while it is read, so nothing in Meta depends on the file any more. Limits:
// keys and names 64 KiB, strings 16 MiB, 2^20 tensors, 1 to 4 dimensions, alignment a power of two from 8 bytes to 64 KiB, no
// nested arrays, no key or tensor name twice. Allocation stays below 4 × the file + 16 MiB. Tensor data is not touched until a
// tensor's Bytes is called, which scans it once for NaN and Inf.
//
// It never knows what an architecture needs. Shapes are outermost first: [rows, cols], the reverse of GGUF's ne.
//
// Concurrency: Meta and Tensor may be read from many goroutines once built; Meta.Set is for the one who builds it.
package gguf
