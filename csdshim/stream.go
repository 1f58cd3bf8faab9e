package csdshim

import (
	"context"
	"sync"
	"time"

	"terrace/csdshim/wire"
)

// blockStream sends score blocks, each in a frame of its own, when their modelled time has come, while the engine produces
// more, and where several questions came in one message the outcome of each behind its blocks. Frames that are due together leave with one system call: each call costs both sides a wake-up. It holds at most the
// scores of one request, so that a slow client keeps no one else from the engine.
type blockStream struct {
	c       *conn
	id      uint64
	changed chan struct{} // a frame is full, or the end
	done    chan error

	mu     sync.Mutex
	queue  []readyBlock
	closed bool
}

// readyBlock is an encoded block and the time at which the host has it.
type readyBlock struct {
	bytes    []byte
	at       time.Duration
	question int
	outcome  func() wire.Answered // not nil: the question's outcome, told when it is sent, and not a block
}

// slack is how far ahead of its modelled time a block may leave: to wait for less costs more than it shapes.
const slack = 20 * time.Microsecond

func (s *blockStream) add(question int, b *Block, at time.Duration) {
	s.put(readyBlock{bytes: wire.AppendBlock(make([]byte, 0, wire.BlockBytes(len(b.Positions))+16), b.Positions, b.Scores), at: at, question: question})
}

// answer queues a question's outcome.
func (s *blockStream) answer(question int, at time.Duration, outcome func() wire.Answered) {
	s.put(readyBlock{at: at, question: question, outcome: outcome})
}

func (s *blockStream) put(r readyBlock) {
	s.mu.Lock()
	s.queue = append(s.queue, r)
	s.mu.Unlock()
	s.wake()
}

func (s *blockStream) end() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wake()
}

func (s *blockStream) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// take is what has been added since; closed says that nothing follows.
func (s *blockStream) take() (blocks []readyBlock, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	blocks, s.queue = s.queue, nil
	return blocks, s.closed
}

// run sends until the end, an error, or the end of ctx, and then reports. What is due at the end is left to be sent together
// with the request's outcome.
func (s *blockStream) run(ctx context.Context) {
	for {
		blocks, closed := s.take()
		for _, b := range blocks {
			if err := s.send(ctx, b); err != nil {
				s.done <- err
				return
			}
		}
		switch {
		case closed:
			s.done <- nil
			return
		case len(blocks) > 0:
			if err := s.c.flush(); err != nil {
				s.done <- err
				return
			}
			continue
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			s.done <- ctx.Err()
			return
		}
	}
}

// send readies a block's frame at its time; what was ready before leaves first where that is still to come.
func (s *blockStream) send(ctx context.Context, b readyBlock) error {
	clock := s.c.d.clock
	if ahead := b.at - clock.Now(); !clock.Modelled() && ahead > slack {
		if err := s.c.flush(); err != nil {
			return err
		}
		if err := wait(ctx, clock, ahead); err != nil {
			return err
		}
	}
	if b.outcome != nil {
		return s.c.hold(wire.Header{Type: wire.TypeAnswered, ID: s.id, At: uint32(b.question)}, b.outcome().Append(nil))
	}
	return s.c.hold(wire.Header{Type: wire.TypeScores, ID: s.id, At: uint32(b.question)}, b.bytes)
}
