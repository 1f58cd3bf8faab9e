// Package shelf keeps contexts (beginnings that prompts share) on the tiers of a store as a placement says: it carries out what a
// policy.Layout decides, compresses contexts, moves them, and measures what compressing costs in quality.
//
// Two fronts. A replay knows its contexts: it tells the shelf of each ([Shelf.Arrive], [Shelf.Use]) and settles while nobody waits. A
// server does not: a [Keeper] finds them in the prompts that come, and works in steps while nobody is served.
//
// What a context is to a Keeper. Prompts are cut into the store's blocks. A context is a beginning, in whole blocks, that two prompts
// have had; the first prompt of its kind, whole; or a text that goes on, up to where its last prompt ended (a conversation). It never has
// a prompt's last token, which is always computed. An access is a prompt that begins with it.
//
// Invariants.
//  1. No tier is ever over its capacity: what leaves a place does so before something else is put there.
//  2. An interrupted step leaves contexts where they were, or nowhere (then they are computed); never in part.
//  3. Quality is that of the measure given, against answers from the whole KV; what was measured stays when a profile is interrupted.
//  4. Bytes of blocks that several whole contexts share count for each in the layout, and lie on a tier once.
//
// Concurrency: all is called from the goroutine that owns the engine.
//
// Files: configs.go (configurations and their policies), reader.go (reading and compressing), profile.go (quality), shelf.go (what is
// kept), moves.go (carrying out), found.go (prompts that have come), keeper.go (a server's front), work.go (its steps), index.go (what
// outlives the process).
package shelf
