// Package imatrix reads, makes and writes importance matrices: for each weight matrix the mean square of every column's input over
// a text, by which quantisers weigh errors.
//
// It owns the file format: the GGUF that llama.cpp's llama-imatrix writes (general.type "imatrix"; for a tensor NAME the tensors
// NAME.in_sum2, sums of squares [experts, columns], and NAME.counts, rows that went into them [experts]), and reads the binary one that
// it wrote until 2025 (.dat) as well.
//
// Invariants:
//  1. Values are finite and not negative, or reading is an error that names the tensor.
//  2. An expert that no token reached has weight 1 everywhere, as in llama.cpp.
//  3. Files are written with sorted names: equal sums give equal bytes.
//
// Concurrency: a Collector belongs to one goroutine; a Matrix is read by many.
package imatrix
