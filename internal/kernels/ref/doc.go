// Package ref is the plain-Go oracle of the kernels, compiled on every machine. It is written to be read: one loop a
// formula, sums in float64, no blocking. The paths without assembly run it where speed does not matter; tests compare
// every other path with it.
//
// Units and shapes are those of the function of the same name in kernels. Functions keep no state.
package ref
