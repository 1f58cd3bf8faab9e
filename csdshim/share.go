package csdshim

import (
	"fmt"
	"sync"

	"terrace/csdshim/wire"
	"terrace/internal/vfs/view"
)

// Replies in shared memory: a client hands the drive memory with its hello, and the drive writes what is fetched and gathered there,
// as a device writes to a host's memory, instead of sending it through the socket. Which place a reply has, and until when,
// is the client's to say. Systems without such memory get Data frames.

// slots are a client's shared memory, cut into equal places for one reply each.
type slots struct {
	mu     sync.Mutex
	view   *view.View
	size   int
	free   []int
	users  int // places whose bytes somebody here may touch
	closed bool
}

func newSlots(v *view.View, size, n int) *slots {
	s := &slots{view: v, size: size}
	for i := n - 1; i >= 0; i-- {
		s.free = append(s.free, i)
	}
	return s
}

// take is a place for n bytes, as a header's At; 0 where there is none.
func (s *slots) take(n int) (at uint32) {
	if s == nil || n == 0 || n > s.size {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.free) == 0 {
		return 0
	}
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.users++
	return uint32(i*s.size/wire.ShareUnit) + 1
}

// offset is the place's first byte.
func offset(at uint32) int64 { return int64(at-1) * wire.ShareUnit }

// bytes are a reply's in its place.
func (s *slots) bytes(at uint32, n int) []byte { return s.view.At(offset(at), n) }

// leave ends the use of a place here. The drive may still write to it, unless it has answered: then it is free.
func (s *slots) leave(at uint32, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if answered {
		s.free = append(s.free, int(offset(at))/s.size)
	}
	s.unmap()
}

// answered frees a place that was left before.
func (s *slots) answered(at uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, int(offset(at))/s.size)
}

// close gives the memory back as soon as nobody reads it.
func (s *slots) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.unmap()
}

func (s *slots) unmap() {
	if s.closed && s.users == 0 && s.view != nil {
		_ = s.view.Close() // nothing can be done about memory that the system does not take back
		s.view = nil
	}
}

// replyRoom is where the drive puts a reply.
type replyRoom struct {
	c        *conn
	id       uint64
	bytes    []byte
	borrowed *[]byte // not in shared memory: Data frames
}

// room is memory for a reply of n times each bytes, after that was compared with the limit: in shared memory where the request says.
func (c *conn) room(h wire.Header, n, each int) (*replyRoom, error) {
	if n > maxReplyBytes/max(each, 1) {
		return nil, fmt.Errorf("csdshim: reply of %d times %d bytes, at most %d: %w", n, each, maxReplyBytes, ErrRequest)
	}
	if h.At == 0 {
		b := borrow(n * each)
		return &replyRoom{c, h.ID, *b, b}, nil
	}
	if c.shared == nil || offset(h.At)+int64(n*each) > c.sharedBytes {
		return nil, fmt.Errorf("csdshim: reply of %d bytes to byte %d of %d bytes of shared memory: %w", n*each, offset(h.At), c.sharedBytes, ErrRequest)
	}
	return &replyRoom{c, h.ID, c.shared.At(offset(h.At), n*each), nil}, nil
}

// shared says that the client reads the reply where it lies.
func (r *replyRoom) shared() bool { return r.borrowed == nil }

// send takes the reply to the client, unless it is there.
func (r *replyRoom) send() error {
	if r.shared() {
		return nil
	}
	return r.c.reply(r.id, r.bytes)
}

func (r *replyRoom) giveBack() {
	if r.borrowed != nil {
		giveBack(r.borrowed)
	}
}
