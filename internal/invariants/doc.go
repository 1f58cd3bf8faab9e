// Package invariants holds checks of what must always be true, switched on by a build tag.
//
// It owns Enabled and Check: with the tag invariants, and under the race detector, a check that fails panics, because it
// is a bug and never user input; otherwise the checks compile to nothing when they stand behind `if invariants.Enabled`.
// It never checks user input and never logs. Safe for concurrent use.
package invariants

import "fmt"

// Check panics with the formatted text where checks are on and ok is false.
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("invariant broken (a bug): " + fmt.Sprintf(format, args...))
	}
}
