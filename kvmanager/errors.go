package kvmanager

import (
	"errors"
	"fmt"

	"terrace/internal/units"
)

var (
	// ErrBudget is returned when an allocation would exceed the byte budget; nothing was changed, the message has both numbers.
	ErrBudget = errors.New("KV cache budget exceeded")
	// ErrPlan marks token indices that are out of range, unsorted or repeated.
	ErrPlan = errors.New("bad plan")
	// ErrUnsupported is returned for what a cache of this element type cannot do.
	ErrUnsupported = errors.New("not possible with this KV type")
	// ErrSlid is returned by Truncate where what later rows read was freed by Slide: the text is to be read again.
	ErrSlid = errors.New("tokens before the sliding window are gone")
	// ErrStalled is returned for a transfer that took longer than its deadline.
	ErrStalled = errors.New("the storage tier does not answer")
	// ErrClosed is returned for a sequence that was freed.
	ErrClosed = errors.New("sequence is closed")
)

// Roomier is what can be done about an [ErrBudget], behind the size that would do; below says that there is a tier below host memory.
func Roomier(below bool) string {
	if below {
		return "or KV in fewer bits, a shorter prompt"
	}
	return "or a tier below (ssd=DIR,SIZE), KV in fewer bits, a shorter prompt"
}

// BudgetError is an [ErrBudget] with its numbers.
type BudgetError struct {
	What        string // that needs the memory
	NeedBytes   int64  // of host memory at least, what is in use and stays included
	BudgetBytes int64
	Below       bool // there is a tier below host memory
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("%s: KV needs %s of host memory, %s is given: host=%dMiB would do, %s", e.What, units.FormatBytes(e.NeedBytes), units.FormatBytes(e.BudgetBytes), (e.NeedBytes+1<<20-1)>>20, Roomier(e.Below))
}

// Unwrap is [ErrBudget].
func (e *BudgetError) Unwrap() error { return ErrBudget }
