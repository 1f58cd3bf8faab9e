// Package offload owns the tiers below fast memory: what stores records of the KV cache, and the queue that moves them.
//
// What it owns: Store and its implementations (Memory; SSD, one preallocated file), the Queue with priorities,
// cancellation and neighbour merging, byte accounts, fault injection for tests, and the measured bandwidths of a host
// (Profile).
//
// What it never does: know what a score means, which tokens matter or what a page's numbers are. It moves bytes and never
// changes them.
//
// Units and shapes: a record (Key) is one group of Shape.GroupTokens tokens in one layer of one sequence: the pages of all KV
// heads one after another, each kvpage.Layout.PageBytes(), as attention reads them. Sizes are bytes, times durations.
//
// Invariants (cited by number in the code):
//  1. a record is readable only after its write has ended well; what is read is what was written under exactly that key,
//     or the read fails with ErrCorrupt naming it.
//  2. Used never exceeds Capacity; a write that does not fit changes nothing and fails with ErrFull and the numbers.
//  3. Data belongs to the caller before Read or Write and after its ticket is done; in between to the queue.
//  4. Close waits for what is in flight; no goroutine, file or buffer outlives it.
//
// Concurrency: stores and queues are safe for concurrent use. Writing a record while it is read or dropped is the caller's
// mistake: it may then read as either, or as missing, never as a third thing.
package offload
