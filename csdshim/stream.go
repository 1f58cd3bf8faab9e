package csdshim

import (
	"context"
	"sync"
	"time"

	"terrace/csdshim/wire"
)

// blockStream sends score blocks when their modelled time has come, while the engine produces more. What is ready together
// shares a frame. It holds at most the scores of one request, so that a slow client keeps no one else from the engine.
type blockStream struct {
	c       *conn
	id      uint64
	changed chan struct{} // something was added, or the end
	done    chan error

	mu     sync.Mutex
	queue  []readyBlock
	closed bool
}

// readyBlock is an encoded block and the time at which the host has it.
type readyBlock struct {
	bytes []byte
	at    time.Duration
}

// slack is how far ahead of its modelled time a block may leave: to wait for less costs more than it shapes.
const slack = 50 * time.Microsecond

// frameBytes is the size from which on a frame of score blocks is sent.
const frameBytes = 16 << 10

func (s *blockStream) add(b *Block, at time.Duration) {
	r := readyBlock{wire.AppendBlock(make([]byte, 0, wire.BlockBytes(len(b.Positions))+16), b.Positions, b.Scores), at}
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

// run sends until the end, an error, or the end of ctx, and then reports.
func (s *blockStream) run(ctx context.Context) {
	var frame []byte
	flush := func() error {
		if len(frame) == 0 {
			return nil
		}
		err := s.c.send(wire.Header{Type: wire.TypeScores, ID: s.id}, frame)
		frame = frame[:0]
		return err
	}
	clock := s.c.d.clock
	for {
		blocks, closed := s.take()
		for _, b := range blocks {
			ahead := b.at - clock.Now()
			if !clock.Modelled() && ahead > slack || len(frame) >= frameBytes {
				if err := flush(); err != nil {
					s.done <- err
					return
				}
			}
			if !clock.Modelled() && ahead > slack {
				if err := wait(ctx, clock, ahead); err != nil {
					s.done <- err
					return
				}
			}
			frame = append(frame, b.bytes...)
		}
		if closed {
			s.done <- flush()
			return
		}
		if len(blocks) > 0 {
			continue
		}
		if err := flush(); err != nil {
			s.done <- err
			return
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			s.done <- ctx.Err()
			return
		}
	}
}
