// Package retrieval decides what a pass reads of the KV cache, and from where. It stands between the cache (kvmanager) and
// whoever runs layers: the engine with a model, or a simulator with a clock and no model at all.
//
// What it owns, for each text (Sequence): the KV sequence; what the policy has asked to see of it (observer: queries, attention
// column sums, statistics of queries); what a decode step reads (selector: the policy's choice, from an index of the keys);
// where the tokens lie (residency: all in host memory, streamed layer by layer, or hot single tokens in a token cache with
// the rest on the backing store); and, where the backing store is a drive that scores keys, the drive's part: score requests,
// migration between hot and cold, the balance of host and drive (HillInfer). What all texts of an engine share is in Shared.
//
// What it never does: compute a layer, sample a token, know a model's weights. Guessed queries come in through a function
// (Guesser).
//
// One layer of a pass (Pass), in this order; the caller computes between the calls:
//
//	Append(i, k, v)   new keys and values into the cache
//	Observe(i, q)     queries, for the policy
//	Select(i, q)      what layer i reads: the policy's choice, unless it was prepared
//	Prepare(i+1)      guess the next layer's query, choose with it, begin to read what is not in host memory
//	Fetch(i)          wait for what layer i reads; returns the views to attend to
//	BeginBeside       attention of layer i, computed next, shares its threads with the choice for layer i+1 where
//	EndBeside         Prepare has left that to it: layer i's tokens are here, and the query is known
//	Attended(i, out)  the policy's decisions after attention; the layer's pages may leave host memory
//	Overlap(i+1)      take the drive's answers while the rest of layer i is computed
//
// Where blocks of a prompt come and go under the attention of a layer (policy.BlockSwapper), BeginSwap and Swapping.Layer bring the
// index, the token cache and the drive's part of the layers behind it in line; the next layer is then chosen in Select.
//
// Shared.Begin plans the memory of the passes of a step, Pass.End and Pass.Undo close one.
//
// A layer that reads an earlier layer's KV calls Select, Fetch and Attended alone: it reads what its owner chose, and the owner's
// tokens leave, or are let go of, behind the last reader. Layers without KV are not called at all; Prepare goes to the next with some.
//
// Units and shapes: queries are float32 [rows, Heads·KeyDim] of their layer after rotary embedding, attention output [rows, Heads·ValueDim];
// positions are int32; bytes are int64; rates are bytes a second.
//
// Invariants:
//  1. What a step reads is the policy's choice alone, never where tokens lie or who scored them: text is bit-equal with and
//     without tiers, with and without a drive.
//  2. Every token of a layer is scored exactly once for a selection, by the host or by the drive; counts are checked.
//  3. A text's rows depend on no other text of a pass.
//  4. An error of one text is that text's (Rows.Err); the others go on.
//
// Concurrency: one goroutine drives a Shared and its texts; between BeginBeside and EndBeside the pool's threads do. Between Overlap and the next Append a goroutine of this package
// takes answers of the drive; nothing else may touch the texts of that pass meanwhile.
package retrieval
