// Package automaton has the regular languages of constraints: deterministic automata over Unicode code points, their
// Boolean algebra, and the regular expressions of JSON Schema (ECMA-262) that become such automata.
//
// It owns: DFA (dfa.go, algebra.go), expressions as values (node.go), their conversion (nfa.go) and the parser (ecma.go). It knows
// neither JSON nor tokens. Everything is pure; a DFA is immutable and safe for concurrent use.
//
// Units: symbols are code points from 0 to 0x10FFFF without surrogates; states are numbers from 0, the start; Dead is no
// state. Invariants: (1) from every state of a trimmed DFA an accepting state can be reached, so that whoever follows
// transitions never ends in a dead end; (2) sizes are bounded by MaxStates and a budget of steps, beyond them ErrTooLarge.
package automaton
