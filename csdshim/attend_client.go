package csdshim

import (
	"context"
	"fmt"

	"terrace/csdshim/wire"
)

// OpenAttended makes a sequence on the drive whose attention it computes, or finds this owner's of that number, which must have the
// same shape. Append and Attend need it once a connection. ErrUnsupported where the drive has no engine for it.
func (c *Client) OpenAttended(ctx context.Context, seq uint64, shape AttendShape) error {
	if err := shape.Validate(); err != nil {
		return fmt.Errorf("%w: %w", err, ErrRequest)
	}
	_, err := c.roundTrip(ctx, "open", wire.TypeOpenAttend, wire.OpenAttend{Seq: seq, Shape: shape}.Append(nil))
	return err
}

// Append adds tokens at the end of a layer, in frames of about ClientOptions.FrameBytes, one after another. One that is there
// already changes nothing, so that it may be done again where the answer was lost.
func (c *Client) Append(ctx context.Context, shape *AttendShape, m *Tail) (sum Timing, work Work, err error) {
	keys, values := shape.Heads*shape.KeyRowBytes(), shape.Heads*shape.ValueRowBytes()
	each := max(1, c.o.FrameBytes/(keys+values))
	for from := 0; from < m.Tokens; from += each {
		n := min(each, m.Tokens-from)
		part := Tail{Seq: m.Seq, Layer: m.Layer, At: m.At + from, Tokens: n, Keys: m.Keys[from*keys : (from+n)*keys], Values: m.Values[from*values : (from+n)*values]}
		t, rest, err := c.exchange(ctx, "append", &call{kind: wire.TypeAppend}, part.AppendHead(nil), part.Keys, part.Values)
		if err != nil {
			return sum, work, err
		}
		done, err := wire.ParseAttended(rest)
		if err != nil {
			return sum, work, c.explain(ctx, "append", err)
		}
		sum.QueueNs, sum.NANDNs, sum.LinkNs, sum.TotalNs = sum.QueueNs+t.QueueNs, sum.NANDNs+t.NANDNs, sum.LinkNs+t.LinkNs, sum.TotalNs+t.TotalNs
		sum.MeasuredNs, sum.NANDBytes = sum.MeasuredNs+t.MeasuredNs, sum.NANDBytes+t.NANDBytes
		work.Add(done.Work)
	}
	return sum, work, nil
}

// Attend appends the newest token of a layer and returns the layer's attention over all tokens that the drive has of it. It may be
// done again where the answer was lost.
func (c *Client) Attend(ctx context.Context, shape *AttendShape, m *AttendQuery) (Timing, Attended, error) {
	t, rest, err := c.exchange(ctx, "attend", &call{kind: wire.TypeAttend}, m.AppendHead(nil), m.Tail.Keys, m.Tail.Values)
	if err != nil {
		return t, Attended{}, err
	}
	out, err := wire.ParseAttended(rest)
	if heads := len(m.Q) / shape.KeyDim; err == nil && (len(out.Out) != heads*shape.ValueDim || len(out.Max) != heads || len(out.LogSum) != heads) {
		err = fmt.Errorf("csdshim: attention of %d numbers for %d heads of %d: %w", len(out.Out), heads, shape.ValueDim, ErrFrame)
	}
	if err != nil {
		return t, Attended{}, c.explain(ctx, "attend", err)
	}
	return t, out, nil
}
