// Package policy decides which part of a KV cache is kept, read, skipped or moved: one file a method.
//
// It owns the methods' formulas, their parameters (`name:key=value,...` joined by `+`), and the plain data that passes
// between a method and the engine: an observation of one layer ([Layer]) goes in, a plan ([Selection], [Rows], [Mask],
// [Moves]) comes out. It never does I/O, never reads a clock, starts no goroutine, and knows no tier, page or model.
//
// A method is a [Policy] with one or more capabilities, small interfaces found by type assertion:
//
//   - [PromptKeeper]: which tokens stay after the prompt, per layer and KV head (snapkv, knorm, ...)
//   - [KeyMover]: a keeper whose tokens then stand side by side (finch)
//   - [ChannelPruner]: which channels of the prompt's keys become 0 (think)
//   - [StepDropper]: which tokens go after a decode step (h2o, streaming_llm, decoding:...)
//   - [Selector]: which tokens this step's query reads (quest, sparq, infinigen, hillinfer, ...)
//   - [HeadScoring]: what a selector has picked each KV head's tokens by, which decides what stays in memory (infinigen, sparq)
//   - [Projector]: the columns of an approximate key, fixed after the prompt (infinigen)
//   - [Watcher]: who sees all queries of a prompt as they come (infinigen)
//   - [RowPruner], [BlockSwapper], [StepPruner]: which hidden rows travel on, and which come back (sliminfer, lazyllm)
//   - [Masker]: which part of the prefill attention is computed (minference, flexprefill)
//   - [Placer]: where tokens lie, and what moves after each step (hillinfer)
//
// [Parse] reads a command line's text into a [Spec]; [Spec.New] makes a fresh instance for one sequence, as a [Set] with
// at most one provider of each capability. [Needs] say what the engine has to observe; it computes nothing else.
// What [Layer] has no field for is an [Observation], by its key.
//
// Units and shapes: counts are tokens; an index is a place in the cache order of one KV head (0 = oldest cached token), a
// position is a token's place in the text; heads are query heads, kvHead = head / (Heads/KVHeads). Matrices are row-major
// float32, shapes written [rows, columns]. Keys and queries are after RoPE unless a name says Pre.
//
// Invariants:
//
//  1. Plans are ascending and without duplicates; inputs are never changed.
//  2. The same observations give the same plan; ties are decided by the lowest index.
//  3. A plan never keeps or reads more than the budget, and a budget that covers the context keeps everything.
//  4. A plan never drops the token that was just added.
//
// Concurrency: an instance belongs to one sequence and is used by one goroutine at a time; specs and the registry are
// read-only after init and shared freely.
package policy
