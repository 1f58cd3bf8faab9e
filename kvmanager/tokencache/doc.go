// Package tokencache keeps the hot tokens of a sequence in host memory, one by one, while the sequence's KV lies on a backing store:
// a decode step that reads a selection of tokens finds most of them there, and the rest is read group by group, or token by
// token where the tier hands them out so: then all KV heads of a token come, and each shard takes its own.
//
// What it owns: slots and who is in them, eviction priorities, what is on its way for a step, and the compact views that
// attention reads. A slot holds a granule: one token's keys and values, or a page where whole pages are kept. Each layer (and
// KV head, ByHead) has a shard of its own, because what layers select differs: at a quarter of the KV, one shard a layer by
// recency of use misses 5 % of SmolLM2's picks at 8,000 tokens, whole tokens over all layers 14 %.
//
// What it never does: decide what a step reads, or what may be kept beyond SetHot and SetLimit. Policies do, above it.
//
// A step of a layer: Begin (what will be read; begins to fetch), Finish (waits), Views and Build (lays the tokens out),
// attention, Done. Absorb takes newly complete blocks in, Insert tokens that came another way. Follow gives tokens their new names
// where blocks came and went in the middle.
//
// Units: tokens are named by their index in the sequence's token order; a granule is index / Sizes.Granule. Sizes are
// bytes.
//
// Invariants:
//  1. a granule has at most one slot of a shard: at and owner are each other's inverse.
//  2. what a step uses is not displaced in it: a slot's last use is the step it was used in.
//  3. every byte held is charged to the manager, and given back by Free or, slots only, when the manager reclaims them.
//  4. memory that a stalled read may still write to is not used again.
//
// Concurrency: a cache belongs to its sequence and is used by one goroutine; only Build may run on several, each with its
// own scratch.
package tokencache
