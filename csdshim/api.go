package csdshim

import (
	"context"
	"fmt"

	"terrace/csdshim/wire"
)

// OpenSequence makes a sequence on the drive, or finds this owner's sequence of that number, which must have the same
// shape. The other calls need it once a connection.
func (c *Client) OpenSequence(ctx context.Context, seq uint64, shape Shape) error {
	if err := shape.Validate(); err != nil {
		return fmt.Errorf("%w: %w", err, ErrRequest)
	}
	if _, err := c.roundTrip(ctx, "open", wire.TypeOpen, wire.Open{Seq: seq, Shape: shape}.Append(nil)); err != nil {
		return err
	}
	c.mu.Lock()
	c.shapes[seq] = shape
	c.mu.Unlock()
	return nil
}

func (c *Client) shape(seq uint64) (Shape, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.shapes[seq]
	if !ok {
		return s, fmt.Errorf("csdshim: sequence %d is not open on this connection: %w", seq, ErrNotFound)
	}
	return s, nil
}

// WriteGroups stores groups, replacing those that were there; they survive the drive's death when it
// returns. Bytes are the caller's again then. Where it fails, some of the groups may be stored: each is there whole or not.
// Writes of one group must not overlap.
func (c *Client) WriteGroups(ctx context.Context, seq uint64, groups []Group) (Timing, error) {
	shape, err := c.shape(seq)
	if err != nil {
		return Timing{}, err
	}
	record := shape.RecordBytes()
	var calls []pending
	for _, part := range cut(groups, c.o.FrameBytes/record) {
		m := wire.Write{Seq: seq, RecordBytes: record}
		parts := make([][]byte, 1, 1+len(part))
		for _, g := range part {
			if len(g.Data) != record {
				return Timing{}, fmt.Errorf("csdshim: layer %d, group %d: %d bytes, want %d: %w", g.Layer, g.Index, len(g.Data), record, ErrRequest)
			}
			m.Places = append(m.Places, wire.Place{Layer: int32(g.Layer), Group: int32(g.Index)})
			parts = append(parts, g.Data)
		}
		parts[0] = m.AppendHead(nil)
		calls = append(calls, pending{call: &call{kind: wire.TypeWrite}, parts: parts})
	}
	return c.all(ctx, "write", calls)
}

// SetScales tells the drive what a layer's keys are divided by to become integer codes, [KVHeads] or [KVHeads][KeyDim]:
// Score needs it, except for CodesHalf. Stored keys get their codes now, later ones when they are written. Durable when it
// returns.
func (c *Client) SetScales(ctx context.Context, seq uint64, layer int, scales []float32) (Timing, error) {
	return c.roundTrip(ctx, "scales", wire.TypeScales, wire.Scales{Seq: seq, Layer: layer, Values: scales}.Append(nil))
}

// Fetch fills the Data of groups, RecordBytes each, as they were written.
func (c *Client) Fetch(ctx context.Context, seq uint64, groups []Group) (Timing, error) {
	shape, err := c.shape(seq)
	if err != nil {
		return Timing{}, err
	}
	record := shape.RecordBytes()
	var calls []pending
	var rooms []*[]byte
	for _, part := range cut(groups, c.o.FrameBytes/record) {
		m := wire.Fetch{Seq: seq}
		for _, g := range part {
			if len(g.Data) != record {
				return Timing{}, fmt.Errorf("csdshim: layer %d, group %d: room for %d bytes, want %d: %w", g.Layer, g.Index, len(g.Data), record, ErrRequest)
			}
			m.Places = append(m.Places, wire.Place{Layer: int32(g.Layer), Group: int32(g.Index)})
		}
		k := &call{kind: wire.TypeFetch, dst: joined(part)}
		if k.dst == nil {
			room := borrow(len(part) * record)
			rooms, k.dst, k.groups = append(rooms, room), *room, part
		}
		calls = append(calls, pending{call: k, parts: [][]byte{m.Append(nil)}})
	}
	t, err := c.all(ctx, "fetch", calls)
	if err == nil { // else the reader of a connection that is being lost may still write there
		for _, room := range rooms {
			giveBack(room)
		}
	}
	return t, err
}

// joined is the groups' Data as one slice where they lie one after another, so that nothing is copied; else nil.
func joined(groups []Group) []byte {
	n := 0
	for i, g := range groups {
		if i > 0 {
			before := groups[i-1].Data
			if cap(before) <= len(before) || &before[:len(before)+1][len(before)] != &g.Data[0] {
				return nil
			}
		}
		n += len(g.Data)
	}
	if len(groups) == 0 || cap(groups[0].Data) < n {
		return nil
	}
	return groups[0].Data[:n]
}

// cut splits groups into parts of n, at least one.
func cut(groups []Group, n int) (parts [][]Group) {
	n = max(n, 1)
	for len(groups) > 0 {
		m := min(n, len(groups))
		parts = append(parts, groups[:m])
		groups = groups[m:]
	}
	return parts
}

// Gather fills dst with single tokens of a layer: those at positions, which rise, one after another in ⌈n/16⌉ records (see
// gatherBytes) as if they were the only ones; unused slots are zero. Attention over these records is attention over those
// tokens. Quantised keys cannot be gathered (ErrUnsupported): fetch their groups.
func (c *Client) Gather(ctx context.Context, seq uint64, layer int, positions []int32, dst []byte) (Timing, error) {
	shape, err := c.shape(seq)
	if err != nil {
		return Timing{}, err
	}
	if want := gatherBytes(shape, len(positions)); len(dst) != want {
		return Timing{}, fmt.Errorf("csdshim: %d tokens into %d bytes, want %d: %w", len(positions), len(dst), want, ErrRequest)
	}
	if len(positions) == 0 {
		return Timing{}, nil
	}
	each := max(c.o.FrameBytes/shape.RecordBytes(), 1) * GroupTokens
	var calls []pending
	for at := 0; at < len(positions); at += each {
		part := positions[at:min(at+each, len(positions))]
		to := gatherBytes(shape, at)
		calls = append(calls, pending{
			call:  &call{kind: wire.TypeGather, dst: dst[to : to+gatherBytes(shape, len(part))]},
			parts: [][]byte{wire.Gather{Seq: seq, Layer: layer, Positions: part}.Append(nil)},
		})
	}
	return c.all(ctx, "gather", calls)
}

// Score has the drive score the cold tokens of a layer that it stores, and calls each with one block after another while
// they stream in; positions rise. The block is the client's again when each returns. An error of each ends the call.
func (c *Client) Score(ctx context.Context, seq uint64, layer int, q *Query, each func(*Block) error) (Timing, error) {
	limit := q.Limit
	if limit == 0 {
		limit = maxPosition + 1
	}
	last, block, refused := int32(-1), Block{}, error(nil)
	take := func(f scoreFrame) (err error) {
		if f.outcome || f.question != 0 {
			return fmt.Errorf("csdshim: an answer to one of several questions, one was asked: %w", ErrFrame)
		}
		last, err = wire.ParseScores(f.payload, last, limit, &block, func(b *Block) error {
			refused = each(b)
			return refused
		})
		return err
	}
	k := &call{kind: wire.TypeScore}
	err := c.stream(ctx, k, wire.Score{Seq: seq, Layer: layer, Query: *q}.Append(nil), take)
	if refused != nil {
		return Timing{}, fmt.Errorf("csdshim: %s: score: %w", c.socket, refused)
	}
	var t Timing
	if err == nil {
		t, _, err = wire.ParseTiming(k.body)
	}
	if err != nil {
		return Timing{}, c.explain(ctx, "score", err)
	}
	return t, nil
}

// Promote tells the drive that the host holds these tokens, in all layers, and scores them itself. What is hot is forgotten
// when the drive restarts; to score a token twice does no harm, as its score is the same wherever it was computed.
func (c *Client) Promote(ctx context.Context, seq uint64, positions []int32) error {
	_, err := c.roundTrip(ctx, "promote", wire.TypePromote, wire.Tokens{Seq: seq, Positions: positions}.Append(nil))
	return err
}

// Demote makes tokens cold again: the drive scores them. All tokens are cold at first.
func (c *Client) Demote(ctx context.Context, seq uint64, positions []int32) error {
	_, err := c.roundTrip(ctx, "demote", wire.TypeDemote, wire.Tokens{Seq: seq, Positions: positions}.Append(nil))
	return err
}

// Drop forgets the groups of a sequence from one on, in all layers; from 0 on, the sequence itself. One that is not there
// is no error.
func (c *Client) Drop(ctx context.Context, seq uint64, from int) error {
	_, err := c.roundTrip(ctx, "drop", wire.TypeDrop, wire.Drop{Seq: seq, From: from}.Append(nil))
	if err == nil && from == 0 {
		c.mu.Lock()
		delete(c.shapes, seq)
		c.mu.Unlock()
	}
	return err
}

// Stats are the drive's totals.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	_, rest, err := c.exchange(ctx, "stats", &call{kind: wire.TypeStats})
	if err != nil {
		return Stats{}, err
	}
	s, err := wire.ParseStats(rest)
	if err != nil {
		return s, c.explain(ctx, "stats", err)
	}
	return s, nil
}

// pending is a request that has not been sent.
type pending struct {
	call  *call
	parts [][]byte
}

// inFlight is how many of one call's frames are under way at once.
const inFlight = 8

// all does requests, several at a time, and adds up what they took. The first failure ends the rest.
func (c *Client) all(ctx context.Context, what string, list []pending) (sum Timing, err error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	ids := make([]uint64, len(list))
	sent := 0
	for i := range list {
		for ; err == nil && sent < len(list) && sent < i+inFlight; sent++ {
			if ids[sent], err = c.start(ctx, list[sent].call, list[sent].parts...); err != nil {
				break
			}
		}
		if i >= sent {
			break
		}
		waiting := ctx
		if err != nil {
			ended, stop := context.WithCancel(context.Background())
			stop()
			waiting = ended
		}
		body, waitErr := c.wait(waiting, ids[i], list[i].call)
		if err == nil {
			err = waitErr
		}
		if err == nil {
			err = add(&sum, body, list[i].call)
		}
	}
	if err != nil {
		return Timing{}, c.explain(ctx, what, err)
	}
	return sum, nil
}

// add takes a reply's timing into the sum: bytes and parts add up, totals are the longest, as requests overlap.
func add(sum *Timing, body []byte, k *call) error {
	t, _, err := wire.ParseTiming(body)
	if err == nil && k.got != len(k.dst) {
		err = fmt.Errorf("csdshim: %d of %d bytes came: %w", k.got, len(k.dst), ErrFrame)
	}
	if err != nil {
		return err
	}
	sum.QueueNs += t.QueueNs
	sum.NANDNs += t.NANDNs
	sum.EngineNs += t.EngineNs
	sum.LinkNs += t.LinkNs
	sum.TotalNs = max(sum.TotalNs, t.TotalNs)
	sum.MeasuredNs = max(sum.MeasuredNs, t.MeasuredNs)
	sum.NANDBytes += t.NANDBytes
	sum.ScanBytes += t.ScanBytes
	sum.LinkBytes += t.LinkBytes
	return nil
}
