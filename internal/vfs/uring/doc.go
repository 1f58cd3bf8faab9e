// Package uring is Linux's io_uring for positional reads and writes over several buffers, in pure Go.
//
// It owns the ring's shared memory and its three system calls; it is one of the few places with unsafe, because the ring
// is memory shared with the kernel and its entries hold addresses. It never opens files, retries, or decides an order.
//
// Units: offsets and lengths in bytes. A Ring takes at most Depth operations at a time. Submit and Reap may be called from
// any goroutine; AwaitSome blocks a thread and is for one goroutine. Buffers must stay reachable and unmoved until their
// operation has been reaped: the Ring keeps them referenced, and Go's heap does not move.
//
// On other systems, and where the kernel refuses (seccomp, kernel.io_uring_disabled), Open fails with ErrUnsupported.
package uring

import "errors"

// ErrUnsupported: the system has no io_uring, or does not allow it here; the error says why.
var ErrUnsupported = errors.New("io_uring is not available")

// WakeTag is the tag of the empty operation that Wake starts; requests must not use it.
const WakeTag = ^uint64(0)

// Result is a finished operation: the tag given to Submit, and the bytes moved or the error.
type Result struct {
	Tag uint64
	N   int
	Err error
}

// Request is an operation to start. Bufs are filled or written one after another, from Off on.
type Request struct {
	FD    int
	Write bool
	Off   int64
	Bufs  [][]byte
	Tag   uint64
}
