// Package draft guesses the tokens that follow a text, and says how many guesses are worth reading: what speculative decoding
// (Leviathan et al. 2023; engine/speculate.go) needs beside the model. It knows no engine, and decides about speed alone.
package draft

// Drafter guesses the tokens that follow a text, so that one pass can read several. What it guesses changes the speed alone: a guess is kept where the model itself, given the same logits, chooses it.
type Drafter interface {
	// Look prepares to guess what follows the tokens. kind says how far such guesses were to be trusted before, a number below
	// Kinds; -1 = there is nothing to guess from.
	Look(tokens []int) (kind int)
	// Draft appends n guesses at most to dst.
	Draft(dst []int, n int) ([]int, error)
	// Name is what --speculate says.
	Name() string
	Close() error
}

// Most is the most guesses that one pass reads.
const Most = 15

// Kinds is how many kinds of guesses a drafter may tell apart.
const Kinds = 6
