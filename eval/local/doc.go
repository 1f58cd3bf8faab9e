// Package local runs evaluations on engines in this process: the eval.Runner that `infer eval` uses.
//
// It owns greedy decoding with timings, forced decoding, and scoring of continuations, on one engine a policy; the engines
// share the model's weights. It never reads data or scores answers. Log-probabilities are nats, times are wall time, KV
// bytes are those of the session by tier. One call at a time.
//
// Batch runs several samples together without concurrency: each is a coroutine that runs alone until it waits for a decode
// step, so that prompts are read one after another, and suites and engines need no locks; once all wait, their steps are one
// batch. A sample's numbers do not depend on the others, its times do.
package local
