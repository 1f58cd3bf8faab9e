package csdshim

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"terrace/csdshim/wire"
)

// handle does one request and answers it. A panic is a bug and ends the request, not the drive.
func (c *conn) handle(ctx context.Context, h wire.Header, payload []byte) {
	defer func() {
		if r := recover(); r != nil {
			c.o.Log(fmt.Sprintf("csdshim: %v request: internal error: %v\n%s", h.Type, r, debug.Stack()))
			c.send(wire.Header{Type: wire.TypeError, ID: h.ID}, failure(fmt.Errorf("csdshim: %v: internal error of the drive: %v: %w", h.Type, r, ErrDrive)).Append(nil))
		}
	}()
	var t Timing
	var rest []byte
	stop, err := c.before(ctx, h)
	if stop {
		return
	}
	if err == nil {
		t, rest, err = c.do(ctx, h, payload)
	}
	if err != nil {
		c.send(wire.Header{Type: wire.TypeError, ID: h.ID}, failure(err).Append(nil))
		return
	}
	c.send(wire.Header{Type: wire.TypeDone, ID: h.ID}, append(t.Append(nil), rest...))
}

// do does a request; its reply is what it took, and rest.
func (c *conn) do(ctx context.Context, h wire.Header, payload []byte) (t Timing, rest []byte, err error) {
	switch h.Type {
	case wire.TypeOpen:
		err = c.open(payload)
	case wire.TypeWrite:
		t, err = c.write(ctx, payload)
	case wire.TypeScales:
		t, err = c.scales(ctx, payload)
	case wire.TypeScore:
		t, err = c.scoreRequest(ctx, h.ID, payload)
	case wire.TypeScoreMany:
		t, err = c.scoreMany(ctx, h.ID, payload)
	case wire.TypeFetch:
		t, err = c.fetch(ctx, h, payload)
	case wire.TypeGather:
		t, err = c.gather(ctx, h, payload)
	case wire.TypePromote, wire.TypeDemote:
		err = c.place(payload, h.Type == wire.TypePromote)
	case wire.TypeDrop:
		err = c.drop(payload)
	case wire.TypeOpenAttend:
		err = c.openAttend(payload)
	case wire.TypeAppend:
		t, rest, err = c.appendTail(ctx, payload)
	case wire.TypeAttend:
		t, rest, err = c.attend(ctx, payload)
	case wire.TypeStats:
		rest = c.d.Stats().Append(nil)
	default:
		err = fmt.Errorf("csdshim: a client does not send %v: %w", h.Type, ErrFrame)
	}
	return t, rest, err
}

func (c *conn) open(payload []byte) error {
	m, err := wire.ParseOpen(payload)
	if err != nil {
		return err
	}
	return c.s.OpenSequence(m.Seq, m.Shape)
}

func (c *conn) write(ctx context.Context, payload []byte) (Timing, error) {
	m, err := wire.ParseWrite(payload)
	if err != nil {
		return Timing{}, err
	}
	groups := make([]Group, len(m.Places))
	for i, p := range m.Places {
		groups[i] = Group{Layer: int(p.Layer), Index: int(p.Group), Data: m.Record(i)}
	}
	return c.s.Write(ctx, m.Seq, groups)
}

func (c *conn) scales(ctx context.Context, payload []byte) (Timing, error) {
	m, err := wire.ParseScales(payload)
	if err != nil {
		return Timing{}, err
	}
	return c.s.SetScales(ctx, m.Seq, m.Layer, m.Values)
}

// scoreRequest streams blocks while the engine goes on scoring.
func (c *conn) scoreRequest(ctx context.Context, id uint64, payload []byte) (Timing, error) {
	m, err := wire.ParseScore(payload)
	if err != nil {
		return Timing{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &blockStream{c: c, id: id, changed: make(chan struct{}, 1), done: make(chan error, 1)}
	go out.run(ctx)
	t, err := c.s.Score(ctx, m.Seq, m.Layer, &m.Query, func(b *Block, at time.Duration) error {
		out.add(0, b, at)
		return nil
	})
	if err != nil {
		cancel()
		<-out.done
		return t, err
	}
	out.end()
	return t, <-out.done
}

// scoreMany answers several questions one after another, as they were asked, and streams all of it. The timing is that of the last.
func (c *conn) scoreMany(ctx context.Context, id uint64, payload []byte) (Timing, error) {
	m, err := wire.ParseScoreMany(payload)
	if err != nil {
		return Timing{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &blockStream{c: c, id: id, changed: make(chan struct{}, 1), done: make(chan error, 1)}
	go out.run(ctx)
	t, err := c.s.scoreMany(ctx, m.Questions, out)
	if err != nil {
		cancel()
		<-out.done
		return t, err
	}
	out.end()
	return t, <-out.done
}

// dataBytes is about the payload of one Data frame.
const dataBytes = 1 << 20

// reply sends bytes as Data frames; the last goes out with the request's outcome.
func (c *conn) reply(id uint64, b []byte) error {
	for at := 0; at < len(b); at += dataBytes {
		send := c.send
		if at+dataBytes >= len(b) {
			send = c.hold
		}
		if err := send(wire.Header{Type: wire.TypeData, ID: id, At: uint32(at)}, b[at:min(at+dataBytes, len(b))]); err != nil {
			return err
		}
	}
	return nil
}

// maxReplyBytes is the most that one fetch or gather may ask for.
const maxReplyBytes = 64 << 20

func (c *conn) fetch(ctx context.Context, h wire.Header, payload []byte) (Timing, error) {
	m, err := wire.ParseFetch(payload)
	if err != nil {
		return Timing{}, err
	}
	q, err := c.s.find(m.Seq)
	if err != nil {
		return Timing{}, err
	}
	record := q.layout.shape.RecordBytes()
	reply, err := c.room(h, len(m.Places), record)
	if err != nil {
		return Timing{}, err
	}
	defer reply.giveBack()
	groups := make([]Group, len(m.Places))
	for i, p := range m.Places {
		groups[i] = Group{Layer: int(p.Layer), Index: int(p.Group), Data: reply.bytes[i*record : (i+1)*record]}
	}
	t, err := c.s.read(ctx, m.Seq, groups, reply.shared())
	if err != nil {
		return t, err
	}
	return t, reply.send()
}

func (c *conn) gather(ctx context.Context, h wire.Header, payload []byte) (Timing, error) {
	m, err := wire.ParseGather(payload)
	if err != nil {
		return Timing{}, err
	}
	q, err := c.s.find(m.Seq)
	if err != nil {
		return Timing{}, err
	}
	reply, err := c.room(h, (len(m.Positions)+GroupTokens-1)/GroupTokens, q.layout.shape.RecordBytes())
	if err != nil {
		return Timing{}, err
	}
	defer reply.giveBack()
	t, err := c.s.gather(ctx, m.Seq, m.Layer, m.Positions, reply.bytes, reply.shared())
	if err != nil {
		return t, err
	}
	return t, reply.send()
}

func (c *conn) place(payload []byte, hot bool) error {
	m, err := wire.ParseTokens(payload)
	if err != nil {
		return err
	}
	return c.s.Place(m.Seq, m.Positions, hot)
}

func (c *conn) drop(payload []byte) error {
	m, err := wire.ParseDrop(payload)
	if err != nil {
		return err
	}
	return c.s.Drop(m.Seq, m.From)
}
