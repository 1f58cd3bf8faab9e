// Package xla runs models on gomlx: as "gomlx:go" on its pure Go backend (in every binary), and, built with the tag xla
// (which needs cgo), as "xla:cpu" and "xla:cuda" on XLA through a PJRT plugin.
//
// What it owns: the programs of the Backend's calls, compiled once for each shape they are asked for, and device copies of
// the weights in float32, uploaded at their first use. Layers of one structure share programs: weights are arguments.
//
// Shapes: n rows of a pass are padded to N, the next power of two; the T tokens of a view to the next power of two or
// one and a half of one, at least 64. Padded keys get a position no query sees, padded rows a position that sees no key, so padding changes no result. A
// decode step therefore compiles nothing, but for the attention program twice while the context doubles. Counts tells.
//
// What it never does: know where pages come from (it reads views as attention does) or what a policy wants. Sparse prefill
// masks and LogN are model.ErrUnsupported. The Phase makes no difference: all arithmetic is float32.
//
// Concurrency: one pass at a time, as the Backend says. Returned tensors are fresh.
package xla
