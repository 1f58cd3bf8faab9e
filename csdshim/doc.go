// Package csdshim is the computational storage drive: a process of its own that mimics a SmartSSD, and the client that
// talks to it (scoring and exchange of tokens as in HillInfer, flash layout as in InstInfer).
//
// What it owns: the drive (Drive: stored groups, cached key codes, the scoring engine, the model of its times), the server
// that a client reaches through a Unix socket (Listen, Drive.Serve) and the client (Dial, Client). The protocol is in wire,
// flash and its translation layer in flash, hardware figures in profiles/*.toml. What it never does: know a model, a
// policy, or why a token matters; it moves bytes and adds up integers.
//
// What a drive stores: groups of 16 tokens of one layer, all KV heads: the record (KVHeads pages of kvpage.Layout, one after
// another), and a layer's scales once they are known. The low-bit key codes that scores are computed from are the drive's
// own: it makes them from the keys it stores. Sequences are numbered by their owner (a random name a client has); they go
// when they are dropped, or when their owner has been away for its lease.
//
// Scores. A token's score is an exact integer, Σ query·code over all KV heads, divided by 2^Shift and rounded to half
// precision (float32 sums in order of KV heads for CodesHalf and CodesProduct). That is what policy hillinfer computes on the host, to the
// bit, so a selection cannot depend on where a token was scored. The drive scores the cold tokens, those that were not
// promoted; scoring one twice is harmless. Score blocks are 4 bytes a token.
//
// Attention. Sequences opened with an AttendShape are attended to where they lie (InstInfer): Append adds tokens at the end of a
// layer, Attend appends the newest and returns the layer's attention, by the arithmetic that Options.Attention is. The drive keeps
// the sums of their values. What the engine reads is noted by head and stage and charged to argtopk, flash, filters and kernels
// (attend_model.go).
//
// Records on flash lie token by token, [16][KVHeads][key, value], so that Gather reads the flash pages of the tokens asked
// for, not those of every KV head's page; with KeysNAND all keys lie before all values, because scoring then reads
// the keys' pages.
//
// Times. Every request reserves its share of flash channels, bus, DRAM, engine and link, each a token bucket without burst,
// by the profile's rates. On the real clock a reply leaves when its modelled time is over (never before it is really
// done); on the virtual clock nothing waits. Timing and Stats say both: modelled and measured. The engine scores one
// request at a time, on one core.
//
// Replies of Fetch and Gather lie in memory that client and drive share (share.go; Linux), as a device would write them to a host's;
// elsewhere they cross the socket. They are written past the processor's caches (kernels.CopyOut): a store to a line that another core read
// last waits for that core, which took a third of the drive's time.
//
// Passes over a byte that is streamed: the drive reads it from its mapped image, and checks and lays out a record in its core's cache;
// writes it past the caches; the client reads and writes it (the copy keeps a late reply out of memory that has other users by then);
// attention reads it. With the line that the client's store fetches these are six crossings of memory, 19 GB/s at a link's 3.2, beside the
// weights. On two cores of a Zen 4 a drive on one of them needs 0.3 s a GB alone (0.13 to read and check, 0.12 to lay out and write, the rest
// messages and the model of times) and 0.45 beside a host that computes.
//
// Durability: see flash. What is acknowledged survives the drive's death. Which tokens are hot and which codes are in DRAM
// does not: after a restart all are cold, and codes are made again from the keys and scales on flash.
//
// Errors: sentinels in errors.go; every call of a Client ends by its deadline, with ErrTimeout, ErrLost or the drive's own
// error in one line. Nothing is retried in this package; package offload decides that.
//
// Concurrency: Drive, Session and Client may be used by many goroutines.
package csdshim
