package csdshim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"terrace/csdshim/wire"
)

// call is a request in progress, seen from the client.
type call struct {
	kind   wire.Type
	dst    []byte  // Data goes here
	groups []Group // not nil: where Data goes in the end, one record after another; dst is borrowed
	at     uint32  // not 0: the reply lies in shared memory there, and goes to dst from it
	got    int
	scores chan scoreFrame
	result chan struct{} // closed when payload and err are set
	body   []byte
	err    error
	filled chan struct{} // not nil while the reader writes into dst; closed when it is through
	gone   chan struct{} // closed when nobody waits any more
}

// finish ends a call; the client's mu is held.
func (k *call) finish(body []byte, err error) {
	select {
	case <-k.result:
	default:
		k.body, k.err = body, err
		close(k.result)
	}
}

// maxScoreFrames is how many frames of scores may wait for their caller: more stop the reader, and with it the drive.
const maxScoreFrames = 1 << 10

// start sends a request and returns its call; the caller ends it with wait.
func (c *link) start(ctx context.Context, k *call, parts ...[]byte) (id uint64, err error) {
	k.result, k.gone = make(chan struct{}), make(chan struct{})
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return 0, c.err
	}
	c.next++
	id = c.next
	k.at = c.shared.take(len(k.dst))
	c.calls[id] = k
	c.mu.Unlock()
	if err := c.write(ctx, wire.Header{Type: k.kind, ID: id, At: k.at}, parts...); err != nil {
		c.forget(id, k)
		c.leave(k)
		return 0, err
	}
	return id, nil
}

// write sends a frame before the context's deadline; a frame that was begun and not ended breaks the connection.
func (c *link) write(ctx context.Context, h wire.Header, parts ...[]byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	timeout := c.o.Timeout
	if at, ok := ctx.Deadline(); ok {
		timeout = time.Until(at)
	}
	err := writeFrame(c.c, timeout, nil, h, parts...)
	if err == nil {
		return nil
	}
	if c.Err() != nil {
		return c.Err()
	}
	c.fail(fmt.Errorf("csdshim: the drive takes no more requests (%w): %w", err, ErrLost))
	return err
}

// forget takes a call off the list and waits until the reader no longer writes to its memory.
func (c *link) forget(id uint64, k *call) {
	c.mu.Lock()
	if _, open := c.calls[id]; open && k.at != 0 {
		c.late[id] = k.at
	}
	delete(c.calls, id)
	filled := k.filled
	c.mu.Unlock()
	close(k.gone)
	if filled == nil {
		return
	}
	c.c.SetReadDeadline(time.Now().Add(fillGrace)) // a drive that stops in the middle of a frame is lost
	<-filled
	c.c.SetReadDeadline(time.Time{})
}

// fillGrace is how long a cancelled call waits for the rest of a frame that is being read into its memory.
const fillGrace = 250 * time.Millisecond

// received takes a reply out of shared memory and frees its place.
func (c *link) received(k *call) (body []byte, err error) {
	from := k.dst
	if k.at != 0 {
		defer c.shared.leave(k.at, true)
		if k.err != nil {
			return k.body, k.err
		}
		from, k.got = c.shared.bytes(k.at, len(k.dst)), len(k.dst)
		if k.groups == nil {
			copy(k.dst, from)
		}
	}
	if k.err == nil {
		for _, g := range k.groups {
			from = from[copy(g.Data, from):]
		}
	}
	return k.body, k.err
}

// leave ends the use of a place that the drive may still write to.
func (c *link) leave(k *call) {
	if k.at != 0 {
		c.shared.leave(k.at, false)
	}
}

// wait ends a call: the reply, the failure, or the end of ctx, which cancels it at the drive.
func (c *link) wait(ctx context.Context, id uint64, k *call) (body []byte, err error) {
	select {
	case <-k.result:
		return c.received(k)
	case <-ctx.Done():
	}
	c.forget(id, k)
	select {
	case <-k.result: // it ended in the same moment
		return c.received(k)
	default:
	}
	c.leave(k)
	short, cancel := context.WithTimeout(context.Background(), fillGrace)
	defer cancel()
	_ = c.write(short, wire.Header{Type: wire.TypeCancel, ID: id})
	return nil, ctx.Err()
}

// limited gives a context the client's timeout where it has no deadline.
func (c *link) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.o.Timeout)
}

// roundTrip does a request whose reply is a Done frame, and returns what follows the timing.
func (c *link) roundTrip(ctx context.Context, what string, kind wire.Type, parts ...[]byte) (Timing, error) {
	t, _, err := c.exchange(ctx, what, &call{kind: kind}, parts...)
	return t, err
}

func (c *link) exchange(ctx context.Context, what string, k *call, parts ...[]byte) (t Timing, rest []byte, err error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	id, err := c.start(ctx, k, parts...)
	if err == nil {
		rest, err = c.wait(ctx, id, k)
	}
	if err == nil {
		t, rest, err = wire.ParseTiming(rest)
	}
	if err == nil && k.got != len(k.dst) {
		err = fmt.Errorf("csdshim: %d of %d bytes came: %w", k.got, len(k.dst), ErrFrame)
	}
	if err != nil {
		return t, nil, c.explain(ctx, what, err)
	}
	return t, rest, nil
}

// read takes frames off the connection and hands them to their calls. Replies to calls that are gone are dropped.
func (c *link) read(r *bufio.Reader) {
	defer close(c.done)
	for {
		h, err := wire.ReadHeader(r)
		if err == nil {
			err = c.deliver(r, h)
		}
		if err != nil {
			if err == io.EOF {
				err = errors.New("the drive has closed the connection")
			}
			c.fail(fmt.Errorf("%w: %w", err, ErrLost))
			return
		}
	}
}

// deliver reads a frame's payload to where it belongs.
func (c *link) deliver(r *bufio.Reader, h wire.Header) error {
	c.mu.Lock()
	k := c.calls[h.ID]
	var dst []byte
	if k != nil && h.Type == wire.TypeData && int(h.At) == k.got && h.Length <= len(k.dst)-k.got {
		dst = k.dst[k.got : k.got+h.Length]
		k.filled = make(chan struct{})
	}
	c.mu.Unlock()
	if dst != nil {
		err := wire.ReadPayload(r, h, dst)
		c.mu.Lock()
		k.got += len(dst)
		close(k.filled)
		k.filled = nil
		c.mu.Unlock()
		_ = c.c.SetReadDeadline(time.Time{})
		return err
	}
	if k == nil && h.ID != 0 {
		c.answered(h)
		_, err := io.CopyN(io.Discard, r, int64(h.Length))
		return err
	}
	payload := make([]byte, h.Length)
	if err := wire.ReadPayload(r, h, payload); err != nil {
		return err
	}
	return c.settle(h, k, payload)
}

// answered frees the place of a call that nobody waits for any more.
func (c *link) answered(h wire.Header) {
	if h.Type != wire.TypeDone && h.Type != wire.TypeError {
		return
	}
	c.mu.Lock()
	at := c.late[h.ID]
	delete(c.late, h.ID)
	c.mu.Unlock()
	if at != 0 {
		c.shared.answered(at)
	}
}

// settle gives a call what came for it.
func (c *link) settle(h wire.Header, k *call, payload []byte) error {
	switch {
	case h.Type == wire.TypeError:
		f, err := wire.ParseFailure(payload)
		if err != nil {
			return err
		}
		if h.ID == 0 {
			return remote(f)
		}
		c.end(h.ID, nil, remote(f))
	case k != nil && h.Type == wire.TypeDone:
		c.end(h.ID, payload, nil)
	case k != nil && (h.Type == wire.TypeScores || h.Type == wire.TypeAnswered) && k.scores != nil:
		select {
		case k.scores <- scoreFrame{int(h.At), h.Type == wire.TypeAnswered, payload}:
		case <-k.gone:
		}
	default:
		return fmt.Errorf("csdshim: %v frame of %d bytes at %d, which no request waits for: %w", h.Type, h.Length, h.At, ErrFrame)
	}
	return nil
}

func (c *link) end(id uint64, body []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.calls[id]; k != nil {
		delete(c.calls, id)
		k.finish(body, err)
	}
}
