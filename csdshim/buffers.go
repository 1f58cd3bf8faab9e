package csdshim

import "sync"

// buffers are used again for frames and records that cross the drive: fresh memory would have to be cleared each time.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// borrow is n bytes of arbitrary content; giveBack ends the loan.
func borrow(n int) *[]byte {
	b := buffers.Get().(*[]byte)
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	return b
}

func giveBack(b *[]byte) { buffers.Put(b) }
