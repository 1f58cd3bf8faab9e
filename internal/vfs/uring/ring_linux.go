package uring

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's interface (include/uapi/linux/io_uring.h).
const (
	opNop    = 0
	opReadV  = 1
	opWriteV = 2

	enterGetEvents = 1 << 0
	enterExtArg    = 1 << 3

	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1
	featExtArg     = 1 << 8

	offRing = 0
	offSQEs = 0x10000000

	sqeBytes = 64
	cqeBytes = 16
)

type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

type sqe struct {
	op, flags uint8
	prio      uint16
	fd        int32
	off, addr uint64
	len, rw   uint32
	userData  uint64
	_         [3]uint64
}

type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// slot is an operation under way: it keeps the buffers alive and counted.
type slot struct {
	tag  uint64
	bufs [][]byte
	vec  []unix.Iovec
}

// Ring is one io_uring.
type Ring struct {
	fd         int
	extArg     bool // waiting has a deadline
	ring, sqes []byte

	mu    sync.Mutex // submission side and slots
	slots []slot
	free  []uint32
	spare int // slots kept for Wake

	submissions
	completions
}

// submissions is the queue that the kernel reads.
type submissions struct {
	sqHead, sqTail, sqFlags *uint32
	sqMask                  uint32
	sqArray                 []uint32
	entries                 []sqe
}

// completions is the queue that the kernel writes.
type completions struct {
	cqMu           sync.Mutex
	cqHead, cqTail *uint32
	cqMask         uint32
	cqes           []cqe
}

// Open makes a ring for at least depth operations at a time (4095 at most).
func Open(depth int) (*Ring, error) {
	var p params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(min(max(depth, 1)+1, 4096)), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("uring: io_uring_setup: %w: %w", errno, ErrUnsupported)
	}
	r := &Ring{fd: int(fd), extArg: p.features&featExtArg != 0}
	if err := r.mapMemory(&p); err != nil {
		r.unmap()
		return nil, err
	}
	return r, nil
}

func (r *Ring) mapMemory(p *params) (err error) {
	if p.features&featSingleMmap == 0 || p.features&featNoDrop == 0 {
		return fmt.Errorf("uring: features %#x of a kernel before 5.5: %w", p.features, ErrUnsupported)
	}
	size := max(int(p.sq.array)+4*int(p.sqEntries), int(p.cq.cqes)+cqeBytes*int(p.cqEntries))
	prot, flags := unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE
	if r.ring, err = unix.Mmap(r.fd, offRing, size, prot, flags); err != nil {
		return fmt.Errorf("uring: mapping the ring: %w: %w", err, ErrUnsupported)
	}
	if r.sqes, err = unix.Mmap(r.fd, offSQEs, sqeBytes*int(p.sqEntries), prot, flags); err != nil {
		return fmt.Errorf("uring: mapping the entries: %w: %w", err, ErrUnsupported)
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.ring[off])) }
	r.sqHead, r.sqTail, r.sqFlags, r.sqMask = at(p.sq.head), at(p.sq.tail), at(p.sq.flags), *at(p.sq.mask)
	r.sqArray = unsafe.Slice(at(p.sq.array), p.sqEntries)
	r.entries = unsafe.Slice((*sqe)(unsafe.Pointer(&r.sqes[0])), p.sqEntries)
	r.cqHead, r.cqTail, r.cqMask = at(p.cq.head), at(p.cq.tail), *at(p.cq.mask)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.ring[p.cq.cqes])), p.cqEntries)
	r.slots = make([]slot, p.sqEntries)
	for i := range r.slots {
		r.free = append(r.free, uint32(i))
	}
	r.spare = 1
	return nil
}

// Depth is how many operations may be under way.
func (r *Ring) Depth() int { return len(r.slots) - 1 }

// Wake lets AwaitSome return: an empty operation ends, which Reap gives with the tag WakeTag.
func (r *Ring) Wake() error {
	r.mu.Lock()
	r.spare = 0
	r.mu.Unlock()
	n, err := r.Submit([]Request{{FD: -1, Tag: WakeTag}})
	r.mu.Lock()
	r.spare = 1
	r.mu.Unlock()
	if err == nil && n == 0 {
		err = fmt.Errorf("uring: no slot to wake with: %w", unix.EBUSY)
	}
	return err
}

// Submit starts the requests, as many as there is room for, and returns how many it took. An error means that the kernel
// took none of the rest.
func (r *Ring) Submit(reqs []Request) (taken int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tail := *r.sqTail
	for taken < len(reqs) && len(r.free) > r.spare {
		id := r.free[len(r.free)-1]
		r.free = r.free[:len(r.free)-1]
		r.fill(&r.entries[tail&r.sqMask], id, &reqs[taken])
		r.sqArray[tail&r.sqMask] = tail & r.sqMask
		tail++
		taken++
	}
	atomic.StoreUint32(r.sqTail, tail)
	for pending := tail - atomic.LoadUint32(r.sqHead); pending > 0; pending = tail - atomic.LoadUint32(r.sqHead) {
		n, errno := r.enter(pending, 0, 0)
		if errno == unix.EINTR || errno == unix.EAGAIN || errno == unix.EBUSY {
			continue
		}
		if errno != 0 || n == 0 {
			r.withdraw(pending)
			return taken - int(pending), fmt.Errorf("uring: io_uring_enter: %w", errno)
		}
	}
	return taken, nil
}

// fill writes an entry; the slot's vector stays in place until the operation is reaped.
func (r *Ring) fill(e *sqe, id uint32, q *Request) {
	s := &r.slots[id]
	s.tag, s.bufs, s.vec = q.Tag, q.Bufs, s.vec[:0]
	for _, b := range q.Bufs {
		base := unsafe.SliceData(b)
		if n := len(s.vec); n > 0 { // neighbours in memory go as one
			if last := &s.vec[n-1]; uintptr(unsafe.Pointer(last.Base))+uintptr(last.Len) == uintptr(unsafe.Pointer(base)) {
				last.SetLen(int(last.Len) + len(b))
				continue
			}
		}
		v := unix.Iovec{Base: base}
		v.SetLen(len(b))
		s.vec = append(s.vec, v)
	}
	*e = sqe{op: opReadV, fd: int32(q.FD), off: uint64(q.Off), len: uint32(len(s.vec)), userData: uint64(id)}
	switch {
	case q.Tag == WakeTag:
		e.op = opNop
	case q.Write:
		e.op = opWriteV
	}
	if len(s.vec) > 0 {
		e.addr = uint64(uintptr(unsafe.Pointer(&s.vec[0])))
	}
}

// withdraw takes back the last n entries, which the kernel has not taken.
func (r *Ring) withdraw(n uint32) {
	tail := *r.sqTail
	for i := range n {
		id := uint32(r.entries[(tail-1-i)&r.sqMask].userData)
		r.slots[id].bufs = nil
		r.free = append(r.free, id)
	}
	atomic.StoreUint32(r.sqTail, tail-n)
}

func (r *Ring) enter(submit, complete, flags uint32) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), uintptr(complete), uintptr(flags), 0, 0)
	return int(n), errno
}

// Reap appends the operations that have ended, without waiting.
func (r *Ring) Reap(out []Result) []Result {
	r.cqMu.Lock()
	defer r.cqMu.Unlock()
	head := *r.cqHead
	tail := atomic.LoadUint32(r.cqTail)
	if head == tail {
		return out
	}
	r.mu.Lock()
	for ; head != tail; head++ {
		c := r.cqes[head&r.cqMask]
		s := &r.slots[c.userData]
		res := Result{Tag: s.tag, N: int(c.res)}
		if c.res < 0 {
			res.N, res.Err = 0, unix.Errno(-c.res)
		}
		s.bufs = nil
		clear(s.vec)
		r.free = append(r.free, uint32(c.userData))
		out = append(out, res)
	}
	r.mu.Unlock()
	atomic.StoreUint32(r.cqHead, head)
	return out
}

// awaitOne blocks until an operation has ended that nobody has reaped yet. At least one must be under way.
func (r *Ring) awaitOne() error {
	for {
		_, errno := r.enter(0, 1, enterGetEvents)
		if errno == 0 || errno == unix.EBUSY || errno == unix.EAGAIN {
			return nil
		}
		if errno != unix.EINTR {
			return fmt.Errorf("uring: waiting for an operation: %w", errno)
		}
	}
}

// awaitArg is the kernel's io_uring_getevents_arg.
type awaitArg struct {
	sigmask     uint64
	sigmaskSize uint32
	_           uint32
	timeout     *unix.Timespec
}

// AwaitSome blocks until n operations have ended that nobody has reaped yet, or some time has passed. Fewer wake-ups leave
// the processors to whoever computes meanwhile. On kernels before 5.11 it is awaitOne.
func (r *Ring) AwaitSome(n int, most time.Duration) error {
	if !r.extArg || n <= 1 {
		return r.awaitOne()
	}
	ts := unix.NsecToTimespec(most.Nanoseconds())
	arg := awaitArg{timeout: &ts}
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, uintptr(n), enterGetEvents|enterExtArg, uintptr(unsafe.Pointer(&arg)), unsafe.Sizeof(arg))
	switch errno {
	case 0, unix.ETIME, unix.EINTR, unix.EBUSY, unix.EAGAIN:
		return nil
	}
	return fmt.Errorf("uring: waiting for %d operations: %w", n, errno)
}

// Close gives the ring back; nothing may be under way.
func (r *Ring) Close() error { return r.unmap() }

func (r *Ring) unmap() error {
	if r.sqes != nil {
		_ = unix.Munmap(r.sqes)
	}
	if r.ring != nil {
		_ = unix.Munmap(r.ring)
	}
	r.ring, r.sqes = nil, nil
	return unix.Close(r.fd)
}
