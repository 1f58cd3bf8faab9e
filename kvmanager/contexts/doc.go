// Package contexts keeps the KV of finished prefixes on tiers that outlive the process: a prefix that was computed once is read
// back, by the same process after a restart or by another one, bit for bit.
//
// A record is the KV of a block of tokens (a plain prefix), or one part of a compressed context (a prefix from which a policy
// dropped tokens), in all layers and KV heads. Its key is a SHA-256 chain (Chain, ContextKey) over tagged fields: parent, token
// ids, salt, rooted in a fingerprint of all that shapes the bytes. Nothing that differs in any of them can have the same key.
//
// Who owns what. Store: the tiers in order, what is fetched (Fetch, or Arrive in parts) and what is written in the background (Put). A tier: where
// records lie. host: memory of this process. ssd: a file each (internal/storage). blobs: what ssd and servers have in common; a server
// (valkey, s3). Parse and Build: the one byte format of a record, the same on every tier.
//
// Guarantees (cited by number in the code):
//  1. Fetch and Arrive give the bytes that were stored under exactly that key, or nothing: magic, version, key, parent, root, place in the
//     text and the checksum of every section are compared before anything of a record, of Arrive's before anything of that section is
//     used.
//  2. A fetch gives all that was asked for or a prefix of it, never a hole; what is late is not waited for (Rule).
//  3. A record becomes visible only when all its bytes are on the device: its file is renamed once they were synced. A
//     process that dies in between leaves an unfinished file, which the next that writes removes.
//  4. Bytes on a tier never exceed its capacity. The least recently used records go first, a chain's end before its beginning,
//     and never a record of the chain that is being written.
//  5. A tier that is damaged, full, read-only, gone or slow costs one notice and what it held, never an error of the request.
//
// A part of a compressed context may have ranks (Meta.Ranks): by them it is made smaller later. That they are an order of the tokens
// shows when all parts are there, and is for whoever uses them to check.
//
// Several processes may use one ssd folder: readers take no lock (a file never changes); writers take turns (a lock file), and look at
// what others wrote before; a reader that misses a record looks for its file.
//
// Units: bytes are int64, token counts int, times time.Duration. Record buffers are aligned to 4096 bytes and never change once
// they are built; of a record that arrives, a section's once it is there.
//
// Concurrency: a Store, its fetches and its tiers may be used by many goroutines at once.
package contexts
