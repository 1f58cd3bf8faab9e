// Package kvpage is the one byte layout of a page of the key/value cache: the same in memory, on disk and on the wire.
//
// What it owns: where each number of a page lies (Layout), the element types and their conversions (Elem), which layers have which (Types), writing,
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
// Element types: F32, F16, BF16 hold the rounded value (to nearest, ties to even). Integers are KIVI's (arXiv
// 2402.02750): keys are quantised per channel over the 16 tokens of a tile, I3 and I2 over 128, values per token over groups
// of 64 dimensions. A group size that does not depend on the page size keeps results independent of it. Bits an element, scales
// included: K I8 9, I4 6, I3 3.38, I2 2.38; V I8 8.25, I4 4.5, I3 3.25, I2 2.25 (widths multiples of 64).
//
//   - I8: code int8 in [-127, 127], float16 scale = max|x|/127; x ≈ scale·code.
//     K tile: KeyDim scales, then [KeyDim][16] codes. V row: one scale a group, then ValueDim codes.
//   - I4: code in [0, 15], float16 scale = (max-min)/15 and float16 minimum; x ≈ min + scale·code.
//     K tile: KeyDim scales, KeyDim minima, then [KeyDim][8] bytes: byte j holds token j (low half) and j+8 (high half).
//     V row: scale and minimum of each group in turn, then 16 bytes for every 32 dimensions: byte j holds dimension j (low) and j+16 (high).
//   - I3, I2: code in [0, 7] or [0, 3]; keys x ≈ min + scale·code, but for the one of each group that lies farthest from the others, which is
//     float16 itself; values x ≈ scale·(L - 63.5), L the level of Lloyd and Max's for a normal distribution that the code stands for, as
//     TurboQuant (arXiv 2504.19874). Scales and minima are float16.
//     K group of 128 tokens: KeyDim scales, KeyDim minima, the lone key, 16 bits with its number, then tiles, [KeyDim/16 rounded up][2
//     planes of 32 bytes], of I3 a third.
//     Byte 4·(j%8) + 2·(d%2) + j/8 of plane d%16/8 has the two low bits of dimension d of token j from bit 2·(d%8/2) on, of the third
//     plane the highest one in bit d%16/2.
//     V row: for each group of m dimensions its scale, w = ⌈m/8⌉ words of 16 bits and, of I3, ⌈w/2⌉ more: with word k = d%w, half
//     h = d/w%2 and turn i = d/2w, byte 2k+h has the two low bits from bit 2i on, byte 2·(k%⌈w/2⌉)+h of the others the
//     highest one in bit i + 4·⌊k/⌈w/2⌉⌋.
//
// Concurrency: functions write only the page they are given; different pages may be written at once.
package kvpage
