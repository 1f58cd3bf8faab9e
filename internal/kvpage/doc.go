// Package kvpage is the one byte layout of a page of the key/value cache: the same in memory, on disk and on the wire.
//
// What it owns: where each number of a page lies (Layout), the element types and their conversions (Elem), writing,
// reading and moving tokens.
//
// What it never does: allocate pages, know who stores them (tiers add checksums of their own), or know which tokens of a page
// are alive.
//
// Units and shapes: a page holds Tokens tokens (a multiple of 16) of one layer and one KV head: the K payload, then the
// V payload. K is dim-major in tiles of 16 tokens, [Tokens/16][KeyDim][16]: one vector register holds one dimension of
// a whole tile, so q·k needs no horizontal sums and a tile is a packed panel of a matrix product. Where single tokens are
// read here and there, a key in such a tile is spread over all its cache lines: Layout.TokenMajor lays keys of float types
// token by token instead, [Tokens][KeyDim], and readers turn 16 of them into a tile. V is token-major, [Tokens][ValueDim].
// Numbers are little-endian.
//
// Element types: F32, F16, BF16 hold the rounded value (to nearest, ties to even). I8 and I4 are KIVI's (arXiv
// 2402.02750): keys are quantised per channel over the 16 tokens of a tile, values per token over groups of 64
// dimensions. A group size that does not depend on the page size keeps results independent of it. Bits an element, scales
// included: K I8 9, I4 6; V I8 8.25, I4 4.5 (ValueDim a multiple of 64).
//
//   - I8: code int8 in [-127, 127], float16 scale = max|x|/127; x ≈ scale·code.
//     K tile: KeyDim scales, then [KeyDim][16] codes. V row: one scale a group, then ValueDim codes.
//   - I4: code in [0, 15], float16 scale = (max-min)/15 and float16 minimum; x ≈ min + scale·code.
//     K tile: KeyDim scales, KeyDim minima, then [KeyDim][8] bytes: byte j holds token j (low half) and j+8 (high half).
//     V row: scale and minimum of each group in turn, then 16 bytes for every 32 dimensions: byte j holds dimension j (low) and j+16 (high).
//
// Concurrency: functions write only the page they are given; different pages may be written at once.
package kvpage
