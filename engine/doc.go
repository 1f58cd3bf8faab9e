// Package engine runs sessions: prefill in chunks, decode, batches, generation with sampling and stop strings, perplexity
// and benchmarks. It is the only place where model, policy and kvmanager meet.
//
// One forward pass, layer by layer: Project (backend) → Append (kvmanager) → Attend over the views (backend) → Finish
// (backend); then Logits and the sampler. Rows of several sequences may share a pass (batched decode); arithmetic of a row
// never depends on the others.
//
// Under a policy that prunes rows or masks the prompt's attention an empty session's prompt passes layer by layer instead
// (promptPass): hidden of all rows that are alive is kept, 4·D bytes a row, and each layer takes them in chunks. While
// decoding, what was pruned may come back (pruneStage): its rows were kept, and go through the layers they missed once.
//
// How a prompt is cut into chunks changes no bit either, except under policies that add up something over the prompt's rows:
// there it stays below 1e-4 nats of the next token's distribution (TestChunksChangeNothing).
//
// It knows nothing of HTTP or result files. Token ids are int32 on the way through passes, int elsewhere; times are
// time.Duration and named; bytes are int64.
//
// Concurrency: an Engine serves one call at a time; callers serialise. Cancelling the context stops between chunks of a
// prefill and between decode steps.
package engine
