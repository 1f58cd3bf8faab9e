// Package offline answers a file of prompts, one JSON object a line, through a serve.Server of its own: rows join and leave the
// batch as requests of clients do.
//
// Invariants:
//  1. A row's answer depends on the row, the defaults and the model alone, not on the rows beside it or on the batch.
//  2. A finished row is one line of the output, written whole and synced. Rows finish in any order; "row" is the number of the input
//     line, from 1.
//  3. Who starts again with the same output goes on: rows that are there are not computed again, a line that was torn is cut off, and
//     an output of other rows or settings is refused (ErrOther), known by each line's key.
//  4. Rows with an error are tried again. What is wrong with a row stands in its line; only what stops every row ends the run.
package offline
