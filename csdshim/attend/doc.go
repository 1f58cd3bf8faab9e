// Package attend is the arithmetic of the drive's attention engine (InstInfer, arXiv 2409.04992, Algorithm 1 and Sec. IV-B).
//
// What it owns: one layer's attention on one drive: which columns and tokens are read, in which order, and what is computed from
// them. What it never does: know where pages lie, what they cost or who asks.
//
// Arithmetic. SparF's choices are policy sparf's own code, fed with the columns that came through the filters; attention over the
// chosen tokens is package attention's, in the class that the request names (Exact, or Decode over keys and values as they are stored:
// float32 sums); the mean of values is a float32 sum in the order of tokens, divided once. Since a row's result depends on its
// tokens alone (attention, invariants 1 and 4), an answer is bit-equal to the host's on the same kernels.
//
// Units and shapes: queries [query heads, KeyDim] and outputs [query heads, ValueDim] are float32; tokens and dimensions are
// numbered from 0.
//
// Concurrency: an Engine does one request at a time, on the caller's goroutine.
package attend
