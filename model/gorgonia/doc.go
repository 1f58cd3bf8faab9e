// Package gorgonia is the reference backend: every product, norm, activation and softmax of a decoder is a gorgonia
// expression graph, run by its tape machine in float32. It shares no arithmetic with the native backend, so that the two
// check each other; it is not fast.
//
// What it owns: the graphs of the Backend's calls (Embed, Project, Attend, Finish, Logits, GuessQuery) and float32 copies of
// the weights, dequantised at their first use and transposed to [cols, rows].
//
// What it never does: graphs for what is not arithmetic on activations. Rotary tables, masks, the choice of experts and the
// reading of pages are plain Go. It knows no policy and no tier. The pass's Phase makes no difference: all of it is exact.
//
// Shapes: n rows of a pass, D hidden, H and G query and key/value heads of widths dk and dv, V vocabulary; tensors are
// row-major float32 matrices [n, width].
//
// Concurrency: one pass at a time, as the Backend says. Returned tensors are fresh.
package gorgonia
