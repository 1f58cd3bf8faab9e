// Package kvmanager owns the KV cache: pages, the sequences made of them, sharing, eviction and the byte accounts.
//
// A page holds kvpage.Layout.Tokens tokens of one layer and one KV head (16 by default), so that dropping tokens of one
// head really frees memory. Each token keeps its position, so holes left by eviction are right for rotary embeddings and
// sliding windows.
//
// Invariants (cited by number in the code, checked by Manager.Check):
//  1. every page of a slab is either free or referenced; references equal the sequences' page lists that hold it.
//  2. bytes in use = pages referenced × page bytes, and never exceed the budget.
//  3. a page with more than one reference is never written.
//  4. positions in a layer and head's token order ascend strictly.
//  5. pages with equal versions hold equal bytes in the slots both use: a page gets a new version when it is handed out and
//     when slots in use change or go, not when tokens are appended.
//
// Whole pages of a layer can be parked: out of every view, still the sequence's (on tiers they leave memory), and put back at
// their place by position; tokens can be inserted between others.
//
// It knows no policy formula and no transport: policies' plans (which tokens to keep) arrive as token indices.
//
// Concurrency: one goroutine at a time; views stay valid until the next call that changes the sequence.
package kvmanager
