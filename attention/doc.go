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
//  2. Pages that no query of the call can see are not touched, their positions apart; in Decode up to 15 selected tokens
//     before a window are.
//  3. No memory of a page's unused slots, whatever it holds, has an effect.
//  4. A selection's result is that of dense attention over views that hold exactly the selected tokens, bit for bit, in
//     either key order; of quantised keys, over the same codes and scales (Decode) or their float32 values (else).
//
// Budget, SmolLM2-135M (30 layers, 9/3 heads of 64) at 8,000 tokens, float16 pages: a decode step reads 184 MB of K and V
// once (all heads of a group share each load, on AVX2 those of several rows of a text too) and multiplies 2·2·9·64·8000·30 = 0.55 GFLOP, so it is bound by memory;
// prefill of all 8,000 multiplies 2.2 TFLOP and 8.6e9 exponentials, so it is bound by the product kernels: 6-row register
// tiles of float32 (AVX2, AVX-512), bf16 pairs (AVX512_BF16, twice the rate of float32 on Zen 4) or AMX tiles. Column sums
// of weights keep what the softmax left, 2 bytes a row, head and token of a task (6 MB at 8,000 tokens, in L3), and multiply
// each once more: 7 % of reading 2,000 tokens and 9 % of 8,000 (BenchmarkPrefillPolicies, h2o).
//
// Accuracy: Exact is within 4e-6 and Decode within 5e-6 of the largest output of a row (float32 sums); Prefill with bf16
// within 2e-2 on random data, and no farther from the float32 reference than without it in the mean KL of the golden
// prompts (SmolLM2 0.0024 with, 0.0034 without; Gemma 0.0025 and 0.0031; int8 activations dominate).
//
// Concurrency: a Workspace serves one Attend at a time; pages may be read by many.
package attention
