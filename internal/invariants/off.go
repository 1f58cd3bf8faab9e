//go:build !invariants && !race

package invariants

// Enabled says that checks are compiled in: by the tag invariants, and under the race detector.
const Enabled = false
