package csdshim

import (
	"context"
	"sync"
	"time"

	"terrace/csdshim/wire"
)

// blockStream sends score blocks when their modelled time has come, while the engine produces more. What is ready together
// shares a frame: each frame costs both sides a wake-up, which takes as long as a frame of blocks. It holds at most the
// scores of one request, so that a slow client keeps no one else from the engine.
type blockStream struct {
	c       *conn
	id      uint64
	changed chan struct{} // a frame is full, or the end
	done    chan error

	mu      sync.Mutex
	queue   []readyBlock
	waiting int // bytes in queue
	closed  bool
}

// readyBlock is an encoded block and the time at which the host has it.
type readyBlock struct {
	bytes []byte
	at    time.Duration
}

// slack is how far ahead of its modelled time a block may leave: to wait for less costs more than it shapes.
const slack = 20 * time.Microsecond

// frameBytes is the size from which on a frame of score blocks is sent.
const frameBytes = 8 << 10

func (s *blockStream) add(b *Block, at time.Duration) {
	r := readyBlock{wire.AppendBlock(make([]byte, 0, wire.BlockBytes(len(b.Positions))+16), b.Positions, b.Scores), at}
	s.mu.Lock()
	s.queue = append(s.queue, r)
	s.waiting += len(r.bytes)
	full := s.waiting >= frameBytes
	s.mu.Unlock()
	if full {
		s.wake()
	}
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
	blocks, s.queue, s.waiting = s.queue, nil, 0
	return blocks, s.closed
}

// run sends until the end, an error, or the end of ctx, and then reports. What it has at the end is left to be sent together
// with the request's outcome.
func (s *blockStream) run(ctx context.Context) {
	var frame []byte
	var ready time.Duration // when the host has the last block of frame
	for {
		blocks, closed := s.take()
		for _, b := range blocks {
			if len(frame) >= frameBytes {
				if err := s.send(ctx, frame, ready, false); err != nil {
					s.done <- err
					return
				}
				frame = frame[:0]
			}
			frame, ready = append(frame, b.bytes...), b.at
		}
		switch {
		case closed:
			s.done <- s.send(ctx, frame, ready, true)
			return
		case len(blocks) > 0:
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

// send sends a frame of blocks at its time, if there are any.
func (s *blockStream) send(ctx context.Context, frame []byte, at time.Duration, last bool) error {
	if len(frame) == 0 {
		return nil
	}
	clock := s.c.d.clock
	if ahead := at - clock.Now(); !clock.Modelled() && ahead > slack {
		if err := wait(ctx, clock, ahead); err != nil {
			return err
		}
	}
	h := wire.Header{Type: wire.TypeScores, ID: s.id}
	if last {
		return s.c.hold(h, frame)
	}
	return s.c.send(h, frame)
}
