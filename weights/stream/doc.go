// Package stream keeps a bounded part of a model's weights in memory and reads the rest from the model's file as it is needed.
//
// It owns which weights are there, which are on their way and which leave; the memory they lie in; and the reads: by direct I/O, of
// whole rows, in pieces of at most pieceBytes, each of which is checked for NaN and Inf and brought into the form that products read
// (kernels.Matrix.Place) as it comes. It never computes a product and never decides which experts a token uses.
//
// What lies together is a unit: one expert of one layer, or what a dense layer multiplies with. Pinned units stay. The others are
// either experts (experts.go: Use, Predict), or layers (sweep.go: Enter, Peek); a model has one of the two.
//
// In reading order: plan.go (what is asked for, what fits), files.go (direct I/O), store.go (units, room, readers), experts.go and
// sweep.go (who is needed, who leaves), keep.go (the value of an expert in memory), account.go,
// modelled.go (the same decisions on a clock of their own, without memory and files).
//
// Invariants:
//  1. What is held or on its way never leaves.
//  2. Memory of units, of pieces under way and of what the caller accounts for (Plan.OtherBytes) is at most Plan.BudgetBytes.
//  3. A matrix is vacant unless its unit is here. Its bytes are those of the file as it was when it was opened: after each read the
//     file is compared with that.
//  4. An order of the caller's (Step.Next in order) is kept whatever is in memory, so that sums run in one order.
//
// Units: bytes; rows are tokens of a pass. Concurrency: all methods may be called from many goroutines; a Step belongs to one.
package stream
