package csdshim

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"terrace/csdshim/wire"
	"terrace/internal/vfs/view"
)

// ClientOptions of Dial; zero means the default.
type ClientOptions struct {
	// Owner tells this client's sequences from others'; the zero owner means a random one. Several connections, one after
	// another or at once, may have the same.
	Owner [16]byte
	// Lease is how long sequences stay when their owner has no connection; 0 means 60 s, Keep forever.
	Lease time.Duration
	// Timeout ends calls whose context has no deadline; 10 s.
	Timeout time.Duration
	// FrameBytes is about the size that writes and fetches are cut into; 1 MiB.
	FrameBytes int
}

// Keep is a Lease without end: sequences stay until they are dropped.
const Keep = time.Duration(-1)

func (o ClientOptions) withDefaults() ClientOptions {
	if o.Owner == [16]byte{} {
		rand.Read(o.Owner[:])
	}
	switch o.Lease {
	case 0:
		o.Lease = time.Minute
	case Keep:
		o.Lease = 0
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.FrameBytes == 0 {
		o.FrameBytes = 1 << 20
	}
	return o
}

// Client is one connection to a drive; it may be used by many goroutines at once. Every call ends by its context's
// deadline, or else by ClientOptions.Timeout. Nothing is repeated in silence: when the connection is lost, calls in
// progress and all later ones fail with ErrLost, and the caller dials again; sequences are found under the same Owner.
type Client struct {
	*link
	shapes map[uint64]Shape // of sequences; under the link's mu
}

// link is the connection of a client: requests and their replies, through the socket and shared memory.
type link struct {
	o      ClientOptions
	socket string
	c      net.Conn
	id     Identity

	writeMu sync.Mutex

	mu    sync.Mutex
	next  uint64
	calls map[uint64]*call
	err   error             // why the connection is over
	late  map[uint64]uint32 // places in shared memory of calls that nobody waits for, by id
	done  chan struct{}     // the reader has ended

	shared *slots // nil = replies come through the socket
}

// Dial connects to a drive's socket and greets it. A drive of another version is ErrVersion.
func Dial(ctx context.Context, socket string, o ClientOptions) (*Client, error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("csdshim: no drive answers at %s: %w: %w", socket, err, ErrLost)
	}
	c := &Client{link: &link{o: o, socket: socket, c: conn, calls: map[uint64]*call{}, late: map[uint64]uint32{}, done: make(chan struct{})}, shapes: map[uint64]Shape{}}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	r := bufio.NewReaderSize(conn, readBytes)
	err = c.greet(r)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		c.shared.close()
		return nil, c.explain(ctx, "hello", err)
	}
	go c.read(r)
	return c, nil
}

// greet says hello and reads the drive's answer.
func (c *link) greet(r io.Reader) error {
	if err := c.hello(); err != nil {
		return err
	}
	h, err := wire.ReadHeader(r)
	if err != nil {
		return err
	}
	if h.Length > 8<<10 {
		return fmt.Errorf("csdshim: welcome of %d bytes: %w", h.Length, ErrFrame)
	}
	payload := make([]byte, h.Length)
	if err := wire.ReadPayload(r, h, payload); err != nil {
		return err
	}
	switch h.Type {
	case wire.TypeWelcome:
		if c.id, err = wire.ParseIdentity(payload); err == nil && !c.id.Shares {
			c.shared.close()
			c.shared = nil
		}
		return err
	case wire.TypeError:
		f, err := wire.ParseFailure(payload)
		if err != nil {
			return err
		}
		return remote(f)
	}
	return fmt.Errorf("csdshim: the drive greets with a %v frame: %w", h.Type, ErrFrame)
}

// hello sends the first frame, with memory for replies where the system has such.
func (c *link) hello() error {
	hello := wire.Hello{Owner: c.o.Owner, LeaseMs: uint32(c.o.Lease / time.Millisecond)}
	size := (c.o.FrameBytes + wire.ShareUnit - 1) / wire.ShareUnit * wire.ShareUnit
	if size <= wire.MaxShareBytes/inFlight {
		if memory, file, err := view.Share(int64(inFlight * size)); err == nil {
			defer file.Close()
			c.shared = newSlots(memory, size, inFlight)
			hello.ShareBytes = uint32(inFlight * size)
			payload := hello.Append(nil)
			h := wire.Header{Type: wire.TypeHello, Length: len(payload), Sum: wire.Checksum(0, payload)}
			return sendFile(c.c, append(h.Append(nil), payload...), file)
		}
	}
	return writeFrame(c.c, c.o.Timeout, nil, wire.Header{Type: wire.TypeHello}, hello.Append(nil))
}

// explain says which call failed at which drive, and turns ends of the connection and of time into this package's errors.
func (c *link) explain(ctx context.Context, what string, err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, ErrLost) || errors.Is(err, ErrTimeout) || errors.Is(err, ErrVersion):
		return fmt.Errorf("csdshim: %s: %s: %w", c.socket, what, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("csdshim: %s: %s: %w", c.socket, what, err)
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		if errors.Is(ctx.Err(), context.Canceled) {
			return fmt.Errorf("csdshim: %s: %s: %w", c.socket, what, context.Canceled)
		}
		return fmt.Errorf("csdshim: %s: %s: %w", c.socket, what, ErrTimeout)
	case err == io.EOF || errors.Is(err, net.ErrClosed):
		return fmt.Errorf("csdshim: %s: %s: the drive has closed the connection: %w", c.socket, what, ErrLost)
	}
	var told *remoteError
	if errors.As(err, &told) {
		return fmt.Errorf("csdshim: %s: %s: %w", c.socket, what, err)
	}
	return fmt.Errorf("csdshim: %s: %s: %w: %w", c.socket, what, err, ErrLost)
}

// Identity is what the drive said about itself when it was dialled.
func (c *Client) Identity() Identity { return c.id }

// Owner is whose sequences this client sees.
func (c *Client) Owner() [16]byte { return c.o.Owner }

// Err is why the connection is over; nil while it is not.
func (c *link) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close drops leased sequences, as far as the drive still answers within a second, and ends the connection.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var err error
	if c.Err() == nil {
		_, err = c.roundTrip(ctx, "bye", wire.TypeBye, nil)
	}
	c.fail(fmt.Errorf("csdshim: client is closed: %w", ErrLost))
	<-c.done
	return err
}

// Abandon ends the connection without a word: leased sequences stay for their lease.
func (c *link) Abandon() {
	c.fail(fmt.Errorf("csdshim: client is closed: %w", ErrLost))
	<-c.done
}

// fail ends the connection; the first reason counts.
func (c *link) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		c.c.Close()
	}
	for id, k := range c.calls {
		delete(c.calls, id)
		k.finish(nil, c.err)
	}
	c.shared.close()
}
