package kvmanager

import "errors"

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
