// Package share spreads one evaluation over several machines through NATS JetStream.
//
// It owns two streams a run: jobs (samples with the policies they lack, a work queue) and results (outcomes on their way
// to the run folder). One process keeps the folder (Keep) and works too; any number join (Join). A job is acknowledged only
// after its outcomes are in the results stream, and an outcome only after it is synced in the folder, so that a worker or
// the keeper may die at any moment: jobs are handed out again, outcomes that come twice are dropped. It never sends
// prompts, data or weights: every machine has its own, and options (with hashes of both) must be equal.
//
// Keep and Join use the runner from one goroutine. Times are of the machine that ran a sample.
package share
