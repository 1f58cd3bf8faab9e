// Package memlimit says what bounds this process's memory: the machine, control groups, ulimit.
package memlimit

// Limit is one bound on this process's memory.
type Limit struct {
	What    string // as the user knows it
	Bytes   int64  // of the limit
	Free    int64  // of it
	Mapped  bool   // mapped files count
	Process bool   // it bounds this process (or its group) rather than the machine
}

// Available is how many bytes can be used without swapping, under every limit that is known; 0 where none is.
func Available() int64 {
	least := int64(0)
	for _, l := range All() {
		if free := max(l.Free, 1); least == 0 || free < least {
			least = free
		}
	}
	return least
}
