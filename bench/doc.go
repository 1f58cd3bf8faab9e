// Package bench measures an engine: time of prompt processing and generation at a depth, alone or in a batch (Open), and
// perplexity of a text (Perplex).
//
// What it owns: repeats, what is read before the time begins, and the sums. What it never does: compute, print, or judge.
//
// Units: tokens a second, time.Duration, nats a token. Every figure is measured on this machine.
//
// Concurrency: as the engine's, one call at a time; several Runs of different engines may take turns.
package bench
