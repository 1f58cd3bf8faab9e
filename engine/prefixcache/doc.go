// Package prefixcache keeps the KV of what an engine's sessions read in a store of contexts (kvmanager/contexts), and gives it back
// to later sessions, in this process or another.
//
// How a server uses it. In any goroutine, as soon as the prompt is known:
//
//	p := cache.Find(ctx, ids, spec, salt)               // begins to fetch; never nil, never an error
//
// then, in the engine's turn, with a new session under the same spec:
//
//	reused, err := p.Resume(ctx, session)               // KV of the first reused.Tokens tokens is there; 0 = nothing was
//	err = session.Prefill(ctx, ids[reused.Tokens:], …)  // the rest; what is new is stored in the background
//
// At least one token is always left to compute. Text is what it would be without the store, bit for bit: a record holds what a
// prompt's pass computed, and only prompts are stored and found. With KeepAnswers decoded tokens are too (another arithmetic class), under
// keys of their own: Keep stores the blocks that they complete.
// What was stored under a salt is found under that salt alone. Trouble of the store is its notice, never an error here.
//
// A model with recurrent layers has the state of each block's end in the block's record: blocks are chunks there (AfterChunks lets
// chunks end where blocks do), whole records come one after another, and what was found ends with a state. A compressed context has the
// state in its last part.
//
// KV may still be on its way when Resume or OpenContext returns: the session's next pass waits for each layer, and where one is lost
// the session begins again with what is left, or the context is compressed again (engine.Arrival). p.Reused() says afterwards what was not computed.
//
// Files: prefixcache.go (keys, finding, resuming, compressed contexts), arrival.go (layers that come while others are used), records.go
// (KV to records and back), pack.go (records for whoever places contexts),
// shrink.go (a compressed context made smaller from its records).
package prefixcache
