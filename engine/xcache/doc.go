// Package xcache keeps, of some layers, the rows that keys and values were projected from below host memory instead of these (HILOS'
// X-cache, arXiv 2502.09921): where they are wanted again the rows are read and projected again.
//
// What it owns: the choice of layers (Choose), a Store that lies on another (New), and the projection to a block's bytes (Projector).
//
// What it never does: know what a policy reads or when a block moves. Whoever has the cache sees a Store whose records are keys and
// values, byte for byte.
//
// Units and shapes: a row is the layer's input, Hidden float32 numbers, before the layer's norm; a block is Shape.GroupTokens of them
// at positions that follow each other, of one arithmetic. Of L layers the store below has 2·L: record (i, g) is block g of layer i as
// keys and values, record (L+i, g) the same as rows.
//
// Invariants (cited by number in the code):
//  1. a block lies below as rows only if its keys and values, projected again when it was written, were the bytes to be written;
//     every other block lies there as keys and values.
//  2. rows wait for their block's write in memory, at most Options.ReserveBytes and what Lend adds; those without room are
//     forgotten, and their block is written as keys and values.
//
// Concurrency: a Store is safe for concurrent use, as offload.Store asks. One projection runs at a time.
package xcache
