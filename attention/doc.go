// Package attention computes softmax(q·K)·V over a view of KV pages: dense prefill and decode, gathered tokens,
// block-sparse masks, column sums of the weights, and the approximate scores that selection policies rank tokens by.
//
// What it owns: the view it reads (Page, View), the parameters (Params), the sequences of a call (Seq), and how work is
// blocked and spread over a kernels.Pool (Workspace).
//
// What it never does: know where pages come from, which tier held them or why a token is missing; write to a page.
//
// Units and shapes: a view holds one layer and one KV head; query head h reads view h / (Heads/KVHeads). Rows of Q and
// Out are float32, [n, Heads·KeyDim] and [n, Heads·ValueDim]. Tokens of a view are numbered in view order: the tokens
// of its pages one after another. Positions are those of the sequence; a key is visible to a query iff
// 0 <= posQ - posK, and posQ - posK < Window where there is a window.
//
// Invariants:
//  1. A row's result depends on its query, its view and the Phase, never on the other rows of the call, the other
//     sequences, the number of threads or the page size.
//  2. Pages that no query of the call can see are not touched, their positions apart.
//  3. No memory of a page's unused slots, whatever it holds, has an effect.
//
// Concurrency: a Workspace serves one Attend at a time; pages may be read by many.
package attention
