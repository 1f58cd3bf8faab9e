// Package keyindex holds approximate copies of the keys of one layer and scores them: what selecting policies scan instead
// of the keys. It implements policy.Scorer.
//
// What it owns: Columns (half-precision or projected keys, one column a token), Bounds (minimum and maximum of each block of
// tokens), Codes (8-bit and 4-bit keys), Product (product codes), Joint (low-rank keys of all heads), Clusters (groups of keys with sums of values), Hashes
// (tables of keys by the signs of random projections), Rounded (4-bit
// keys of single tokens), Tiles (the cached keys themselves, all dimensions or some), the Index of a layer
// that is built from a view and follows it, and the scans that share its scoring over threads.
//
// What it never does: choose tokens, know a model, a session or a tier. Full tiles may be handed to a Stream, which somebody
// else keeps.
//
// Units and shapes: one Head a KV head; tokens are numbered in cache order; q is [rows, dim] of float32, scores are
// [rows, tokens] (Bounds: [rows, blocks]), row-major, raw products without scale or softmax. A tile is 16 tokens.
//
// Invariants:
//  1. A score depends on the query and the key alone, never on the thread, the chunk, or on where a tile is kept.
//  2. A head's index holds the first Tokens tokens of the view it was refreshed with; where tokens have left the view it is
//     built again from the view, or follows them (FollowTokens).
//  3. Scales that are fixed by the prompt do not change while the text grows: later keys saturate.
//
// Bytes scanned a token and KV head: dim·2 (half), dim (int8), dim/2 (int4), rank·2 (projected), 4·dim/block (bounds),
// one a part (product).
//
// Concurrency: KV heads share nothing, so different heads may be asked at the same time; one head serves one call at a time,
// chunks of its Codes apart.
package keyindex
