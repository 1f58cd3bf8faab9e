package csdshim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"terrace/csdshim/wire"
	"terrace/internal/vfs/view"
)

// conn is the drive's side of one connection.
type conn struct {
	outbox
	d *Drive
	o ServerOptions
	s *Session

	shared      *view.View // the client's, for replies; nil = none
	sharedBytes int64

	mu      sync.Mutex
	running map[uint64]context.CancelFunc // requests in progress by id
	wg      sync.WaitGroup
}

func newConn(d *Drive, c net.Conn, o ServerOptions) *conn {
	return &conn{d: d, o: o, running: map[uint64]context.CancelFunc{}, outbox: outbox{c: c, noise: d.faults.noise, sabotage: map[uint64]*sabotaged{}}}
}

// outbox sends the frames of a connection, one after another.
type outbox struct {
	c        net.Conn
	noise    func([]byte) // of replies that go wrong
	writeMu  sync.Mutex
	broken   bool
	held     []byte                // frames that go out with the next one
	sabotage map[uint64]*sabotaged // requests whose reply goes wrong, in tests
}

// maxRunning is the most requests of one connection at once; the next is read when one has ended.
const maxRunning = 32

// readBytes is the size of the buffer that small frames are read through.
const readBytes = 64 << 10

// serve reads frames until the client leaves, misbehaves, or ctx ends.
func (c *conn) serve(ctx context.Context) {
	defer c.c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer c.wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.c.Close() })
	defer stop()
	in := &greeting{c: c.c}
	defer in.drop()
	r := bufio.NewReaderSize(in, readBytes)
	defer func() {
		cancel()
		c.wg.Wait()
		if c.shared != nil {
			_ = c.shared.Close() // nothing can be done about memory that the system does not take back
		}
	}()
	if err := c.greet(r, in); err != nil {
		c.fault(ctx, err)
		return
	}
	in.over = true
	defer func() {
		cancel()
		c.wg.Wait()
		c.s.Disconnect()
	}()
	slots := make(chan struct{}, maxRunning)
	for {
		h, err := wire.ReadHeader(r)
		payload := borrow(h.Length)
		if err == nil {
			err = wire.ReadPayload(r, h, *payload)
		}
		if err != nil {
			c.fault(ctx, err)
			return
		}
		switch h.Type {
		case wire.TypeCancel:
			c.cancel(h.ID)
			continue
		case wire.TypeBye:
			c.bye(h.ID)
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		request, done, ok := c.begin(ctx, h.ID)
		if !ok {
			c.fault(ctx, fmt.Errorf("csdshim: request id %d is in use or 0: %w", h.ID, ErrFrame))
			return
		}
		c.wg.Go(func() {
			defer func() { giveBack(payload); done(); <-slots }()
			c.handle(request, h, *payload)
		})
	}
}

// bye ends what is running, drops what the client leased, and says so.
func (c *conn) bye(id uint64) {
	c.mu.Lock()
	for _, cancel := range c.running {
		cancel()
	}
	c.mu.Unlock()
	c.wg.Wait()
	if err := c.d.dropLeased(c.s.owner); err != nil {
		c.send(wire.Header{Type: wire.TypeError, ID: id}, failure(err).Append(nil))
		return
	}
	c.send(wire.Header{Type: wire.TypeDone, ID: id}, Timing{}.Append(nil))
}

// greet expects the hello and answers with the drive's identity.
func (c *conn) greet(r io.Reader, in *greeting) error {
	if err := checkPeer(c.c); err != nil {
		return err
	}
	if err := c.c.SetReadDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	h, err := wire.ReadHeader(r)
	if err != nil {
		return err
	}
	if h.Type != wire.TypeHello || h.Length > 1<<10 {
		return fmt.Errorf("csdshim: first frame is %v of %d bytes, want hello: %w", h.Type, h.Length, ErrFrame)
	}
	payload := make([]byte, h.Length)
	if err := wire.ReadPayload(r, h, payload); err != nil {
		return err
	}
	hello, err := wire.ParseHello(payload)
	if err != nil {
		return err
	}
	if err := c.c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if c.shared, err = in.shared(hello.ShareBytes); err != nil {
		c.o.Log(fmt.Sprintf("csdshim: a client's memory cannot be shared, replies go through the socket: %v", err))
	} else if c.shared != nil {
		c.sharedBytes = int64(hello.ShareBytes)
	}
	c.s = c.d.Connect(hello.Owner, time.Duration(hello.LeaseMs)*time.Millisecond)
	if c.d.faults.pick("hello", FaultVersion) != nil {
		return c.greetWrongly()
	}
	id := c.d.Identity()
	id.Shares = c.shared != nil
	return c.send(wire.Header{Type: wire.TypeWelcome, ID: h.ID}, id.Append(nil))
}

// greetWrongly greets as a drive of a later version would.
func (c *conn) greetWrongly() error {
	b := wire.Header{Type: wire.TypeWelcome}.Append(nil)
	b[4]++
	_, err := c.c.Write(b)
	return err
}

// fault tells the client what was wrong with the connection as a whole, and logs it; a client that just left is nothing.
func (c *conn) fault(ctx context.Context, err error) {
	if err == io.EOF || ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return
	}
	c.o.Log(fmt.Sprintf("%v (connection closed)", err))
	c.send(wire.Header{Type: wire.TypeError}, failure(err).Append(nil))
}

// begin notes a request as running.
func (c *conn) begin(ctx context.Context, id uint64) (context.Context, func(), bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 || c.running[id] != nil {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	c.running[id] = cancel
	return ctx, func() {
		cancel()
		c.mu.Lock()
		delete(c.running, id)
		c.mu.Unlock()
	}, true
}

func (c *conn) cancel(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.running[id]; cancel != nil {
		cancel()
	}
}

// send writes a frame; after an error the connection is closed and every later frame is dropped.
func (c *outbox) send(h wire.Header, payload []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return c.sendAlone(h, payload)
}

// sendAlone is send with writeMu held.
func (c *outbox) sendAlone(h wire.Header, payload []byte) error {
	if c.broken {
		return net.ErrClosed
	}
	if done, err := c.mangle(h, payload); done {
		return err
	}
	err := writeFrame(c.c, writeTimeout, c.held, h, payload)
	c.held = c.held[:0]
	if err != nil {
		c.broken = true
		c.c.Close()
	}
	return err
}

// hold keeps a frame to be sent with the next one, which its request sends at once: one wake-up for the other side. A long
// one is sent.
func (c *outbox) hold(h wire.Header, payload []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if _, wrong := c.sabotage[h.ID]; wrong || len(c.held)+len(payload) > readBytes {
		return c.sendAlone(h, payload)
	}
	h.Length, h.Sum = len(payload), wire.Checksum(0, payload)
	c.held = append(h.Append(c.held), payload...)
	return nil
}

// flush sends the frames that are held.
func (c *outbox) flush() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.broken {
		return net.ErrClosed
	}
	if len(c.held) == 0 {
		return nil
	}
	err := c.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		_, err = c.c.Write(c.held)
	}
	c.held = c.held[:0]
	if err != nil {
		c.broken = true
		c.c.Close()
	}
	return err
}

// writeFrame writes frames made before, header and payload parts with one call.
func writeFrame(c net.Conn, timeout time.Duration, before []byte, h wire.Header, parts ...[]byte) error {
	for _, p := range parts {
		h.Length += len(p)
		h.Sum = wire.Checksum(h.Sum, p)
	}
	if err := c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if before == nil {
		before = make([]byte, 0, wire.HeaderBytes)
	}
	bufs := append(net.Buffers{h.Append(before)}, parts...)
	_, err := bufs.WriteTo(c)
	return err
}
