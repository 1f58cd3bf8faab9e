// Package schedule decides what an engine that serves many requests does next: a pure function of the requests that wait, run
// and were swapped out, of the room for their KV, and of a budget of prompt tokens.
//
// It owns the order of things and nothing else: it computes nothing, holds no sessions and reads no clock. Decodes come first,
// then parts of prompts up to the budget (chunked prefill beside decodes: Sarathi-Serve, arXiv:2403.02310); Pace makes the
// budget from measured times. Who is admitted next is decided by what each key has used so far (Ledger; the virtual token
// counter of "Fairness in Serving Large Language Models", arXiv:2401.00588).
//
// Invariants:
//  1. Nobody starves: within a key the oldest comes first, swapped requests come before new ones, and whoever does not fit
//     yet is not overtaken.
//  2. What can never fit is refused at once; nothing else is.
//  3. Where room runs out the youngest running request is swapped out, never the last one.
//  4. A request that would run alone runs, and goes on, whatever is known of the room: who computes it says whether it fits. So nothing
//     waits for room that nobody will leave.
//
// Units: tokens. The functions are safe for concurrent use on different values.
package schedule
