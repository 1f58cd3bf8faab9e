// Package kernels holds the arithmetic that decides Terrace's speed: products of quantised weight matrices with rows of
// activations, the elementwise operations of a transformer layer, attention's inner loops, and the worker pool that
// spreads them over the cores.
//
// What it owns: the choice of the CPU path (Select), the pool (Pool), weight matrices in the tile order of the kernels
// (Matrix, MatMul), and one function an elementwise operation. Block formats are those of the sub-package quant; the
// plain-Go oracles of every kernel are in the sub-package ref, always compiled; the assembly in amd64 and arm64 is generated
// by the module in _asm and never edited. Build tag purego compiles no assembly at all.
//
// What it never does: read the environment, know a model, a layer, a cache or a file. It allocates only in
// constructors and when a scratch buffer grows; steady state is free of allocation.
//
// Units and shapes: matrices are row-major, a product is y = W x with W [rows, cols], activations [n, cols] and results
// [n, rows] are float32 rows. Sizes are counted in elements unless the name ends in Bytes.
//
// Arithmetic: a result depends on its own row of activations, the matrix, the Phase and the CPU path; never on the
// number of rows in the call, on the number of threads or on how tasks were spread (invariant 1).
//
// Concurrency: a Pool runs one parallel section at a time (calls from several goroutines queue); a Matrix may be used
// by many pools; Select must be called before any kernel is in use.
package kernels
