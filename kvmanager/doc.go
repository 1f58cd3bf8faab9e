// Package kvmanager owns the KV cache: pages, the sequences made of them, sharing, eviction and the byte accounts.
//
// A page holds kvpage.Layout.Tokens tokens of one layer and one KV head (16 by default), so that dropping tokens of one
// head really frees memory. Each token keeps its position, so holes left by eviction are right for rotary embeddings and
// sliding windows.
//
// Who owns what. Sequence: which tokens there are, in order, of each layer and head. Its layer store, chosen when it is made:
// the pages' memory. paged has pages in host memory; tiered has blocks (a page of every KV head, one record) on the store of
// an offload.Queue, the backing store, and copies of those that a pass reads. Its encoding, chosen with the cache's layout: how
// tokens are written. floats are written at once; quantized ones wait in a window in full precision (the residual) until
// they fill a tile. Manager: the budget, its account, and who gives memory back. backing: transfers under way.
//
// Layers may differ (cacheshape): each has its own page size, a layer without KV has no pages, and one that reads an earlier layer's KV
// reads the owner's. Beside KV a sequence has the state of recurrent layers (states.go): two copies, of which States.Layer hands out one to
// read and one to write, States.Commit turns them about, and Truncate goes back to a state that is known (States.Before). They are charged
// to the budget, stay in host memory while the text runs (Suspend stores them below), and are copied by Fork.
//
// Invariants (cited by number in the code, checked by Manager.Check):
//  1. every page of a slab is either free or referenced; references equal the sequences' page lists that hold it.
//  2. bytes in use = pages referenced × page bytes + what is charged, and with what is lent (Lend) never exceed the budget.
//  3. a page with more than one reference is never written.
//  4. positions in a layer and head's token order ascend strictly.
//  5. pages with equal versions hold equal bytes in the slots both use: a page gets a new version when it is handed out and
//     when slots in use change or go, not when tokens are appended.
//  6. whether there is room for something does not depend on how fast transfers are: it is refused only when nothing is left
//     that could leave memory and nothing is on its way.
//
// Whole pages of a layer can be made inactive: out of every view, still the sequence's (on tiers they leave memory), and put back at
// their place by position; tokens can be inserted between others.
//
// It knows no policy formula: policies' plans (which tokens to keep) arrive as token indices. What fails to move the queue
// tries again, nobody here does; a transfer that does not end within stallTimeout of the cache's clock fails the request.
//
// Concurrency: one goroutine at a time; views stay valid until the next call that changes the sequence. Appends that
// Sequence.Reserve has made room for may run at the same time where it says so.
package kvmanager
