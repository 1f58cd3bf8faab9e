// Package offload owns the tiers below fast memory: the stores that hold records of the KV cache, and the queue that moves
// them.
//
// What it owns: Store and its implementations (Memory, for tests; SSD, one preallocated file; CSD, a computational storage
// drive in another process), the Queue with priorities, cancellation and merging of neighbours, byte accounts, the retry
// policy, and the measured bandwidths of a host (Profile).
//
// What it never does: know what a score means, which tokens matter or what a page's numbers are. It moves bytes and never
// changes them.
//
// Retry policy. This package alone decides what is retried (retry.go, redial.go). A transfer that failed for a reason that may
// pass (an I/O error, a checksum that does not match, a lost connection to a drive, an answer that did not come in time) is
// started a second time, at once, by the queue that carries it; reads and writes alike; where the connection to a drive was lost
// a third time, because a drive that is being stopped may still take a last connection. The same holds for the calls of a Scorer
// that no queue carries: SetScales, Score, Place. Not retried are ErrFull, ErrMissing, ErrClosed, ErrCancelled, ErrBusy,
// ErrShape, requests that a drive refuses, and transfers that were cancelled. A call to a drive whose connection has ended
// first dials it again for up to 2 s, with waits of 20 ms that double up to 320 ms, on CSDOptions.Clock; if that fails, every
// later call dials once. There are no other waits: everything else that may take long is bounded by the context of the caller
// who waits. A transfer that failed for the last time ends its ticket with ErrTier and the cause; ErrFull, ErrClosed and ErrCancelled are
// returned as they are. The caller may then drop the sequence and store it again.
//
// Units and shapes: a record (Key) is one group of Shape.GroupTokens tokens in one layer of one sequence: the pages of all KV
// heads one after another, each kvpage.Layout.PageBytes(), as attention reads them. Layers may differ in it, and those without KV have
// no records. Sizes are bytes, times durations.
//
// Invariants (cited by number in the code):
//  1. a record is readable only after its write has ended well; what is read is what was written under exactly that key,
//     or the read fails with ErrCorrupt naming it.
//  2. Used never exceeds Capacity; a write that does not fit changes nothing and fails with ErrFull and the numbers.
//  3. Data belongs to the caller before Read or Write and after its ticket is done; in between to the queue.
//  4. Close waits for what is in flight; no goroutine, file or buffer outlives it.
//
// Layout, measured on a virtual disk of 1.3 GB/s in 256 KiB and 47,000 random reads of 12 KiB a second (8,000 tokens, median
// of runs; ms for all layers; SmolLM2: 30 layers of 12 KiB a group, 8×128: 8 layers of 64 KiB):
//
//	                                              SmolLM2               8×128
//	                                         layer-  token-major   layer-  token-major
//	streaming a layer, GB/s                   0.77      0.43        0.98      0.90
//	streaming all layers, GB/s                1.02      0.47        1.21      1.07
//	10 % of the groups, others each layer     31 ms     40 ms       24 ms     24 ms
//	10 %, the same in all layers, one call    31 ms     15-26 ms    24 ms     22 ms
//
// A small record makes token-major cost an operation a record, where layer-major streams; only fetching the same groups in
// all layers at once is faster token-major, and no policy does that within a step. So records lie layer after layer, and extents of 1 MiB keep a layer's groups together. Reading over gaps between
// whole records does not pay: a gap of one record of 12 KiB costs the device what an operation costs it. Between single tokens it does, while
// cores are busy with other things: what an operation costs them counts too (StorageRates.GapBytes; 37 KiB on the disk of 2026-11-23).
//
// Where a policy selects single tokens records lie token by token (SSDOptions.TokenRows), and single tokens are read, near
// ones in one operation with what lies between (ssdrows.go). Records are turned on the way, so whole ones cost a copy.
//
// Checksums are CRC-32C of each head's page, kept in memory (4 bytes a page, or a token): 9 GB/s, 12 % of a core at full streaming.
//
// Concurrency: stores and queues are safe for concurrent use. Writing a record while it is read or dropped is the caller's
// mistake: it may then read as either, or as missing, never as a third thing.
package offload
