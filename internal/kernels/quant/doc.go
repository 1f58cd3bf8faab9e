// Package quant defines the tensor element types of ggml: their names, block sizes and exact meaning in plain Go. It is the
// oracle of every quantised kernel: Dequantize gives the values that a block stands for, in ggml's own order of float32
// operations, and Quantize makes blocks that ggml would make.
//
// A row of cols values is cols/BlockLen blocks of BlockBytes bytes each; cols must be a multiple of BlockLen. Matrices are
// row-major and rows never share a block. All numbers in a block are little-endian.
//
// It never reads files, never starts goroutines and knows no tensor names. Block formats follow ggml (ggml-common.h,
// ggml-quants.c); MXFP4 follows the OCP Microscaling Formats specification 1.0, section 5.3 (elements E2M1, block scale E8M0).
//
// Concurrency: all functions are pure and may be called from many goroutines, on disjoint destinations.
package quant
