package csdshim

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/hardware"
	"terrace/csdshim/nand"
	"terrace/csdshim/wire"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// The messages of attention in the drive, for users of this package.
type (
	// AttendShape says what a sequence is whose attention the drive computes.
	AttendShape = wire.AttendShape
	// AttendQuery is what a layer is asked with; its Tail, the newest token's key and value, is appended first.
	AttendQuery = wire.Attend
	// Tail is new tokens at the end of a layer.
	Tail = wire.Tail
	// Attended is attention over the tokens that a drive holds, and what that cost.
	Attended = wire.Attended
	// Work is what an Append or Attend cost on the drive.
	Work = wire.Work
	// Stage is one unit's modelled work on a request.
	Stage = wire.Stage
)

// The units of a Stage that are not the engine's.
const (
	UnitLink = wire.UnitLink
	UnitNAND = wire.UnitNAND
)

// flashShape is how a sequence lies on flash.
func flashShape(s *AttendShape) flash.KVShape {
	return flash.KVShape{Layers: s.Layers, Heads: s.Heads, KeyDim: s.KeyDim, ValueDim: s.ValueDim, ElemBytes: s.ElemBytes, TokenGroup: s.TokenGroup, EmbeddingGroup: s.EmbeddingGroup, Paired: s.Paired}
}

// Attention is the arithmetic of the drive's engine (package csdshim/attend has it). One call at a time.
type Attention interface {
	// Attend fills out (Out, Max and LogSum) with the attention of a query over the n tokens of a layer, which it reads through
	// r. means are the sums of all values of each KV head, [Heads][ValueDim].
	Attend(shape *AttendShape, m *AttendQuery, n int, means []float32, r *HeadReader, out *Attended) error
}

// attended is a sequence that the drive attends to. Sums of values are the drive's own, kept when tokens are appended and added up
// again after a restart.
type attended struct {
	id     uint32
	owner  [16]byte
	leased bool
	shape  AttendShape

	mu   sync.Mutex
	sums [][]float32 // by layer, [Heads][ValueDim]
	row  []float32
}

// OpenAttended makes a sequence that the drive attends to, or finds the owner's of that number, which must have the same shape.
func (s *Session) OpenAttended(number uint64, shape AttendShape) error {
	d := s.d
	if err := shape.Validate(); err != nil {
		return fmt.Errorf("%w: %w", err, ErrRequest)
	}
	if d.opts.Attention == nil || d.opts.Profile.Engine.None {
		return fmt.Errorf("csdshim: profile %s has no engine that attends: %w", d.opts.Profile.Name, ErrUnsupported)
	}
	if err := flashShape(&shape).Validate(d.opts.Profile.NAND.PageBytes); err != nil {
		return fmt.Errorf("csdshim: %w: %w", err, ErrRequest)
	}
	meta := shape.Append(nil)
	d.mu.Lock()
	lease := s.owner.lease
	d.mu.Unlock()
	stored, _, err := d.store.OpenSequence(s.owner.id, number, uint32(lease/time.Millisecond), meta)
	if err != nil {
		return err
	}
	if !bytes.Equal(stored.Meta, meta) {
		return fmt.Errorf("csdshim: sequence %d is there with another model, KV type or layout: drop it first: %w", number, ErrRequest)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attends[stored.ID] == nil {
		return d.adoptAttended(stored, shape)
	}
	return nil
}

// adoptAttended makes a sequence known; mu is held, or nobody else is there yet.
func (d *Drive) adoptAttended(s flash.Sequence, shape AttendShape) error {
	if err := d.store.ShapeKV(s.ID, flashShape(&shape)); err != nil {
		return err
	}
	w := d.ownerOf(s.Owner)
	w.lease = max(w.lease, time.Duration(s.LeaseMs)*time.Millisecond)
	d.attends[s.ID] = &attended{id: s.ID, owner: s.Owner, leased: s.LeaseMs > 0, shape: shape, sums: make([][]float32, shape.Layers), row: make([]float32, shape.ValueDim)}
	return nil
}

// findAttended is the owner's sequence of that number.
func (s *Session) findAttended(number uint64) (*attended, error) {
	if stored, ok := s.d.store.Lookup(s.owner.id, number); ok {
		s.d.mu.Lock()
		q := s.d.attends[stored]
		s.d.mu.Unlock()
		if q != nil {
			return q, nil
		}
	}
	return nil, fmt.Errorf("csdshim: sequence %d is not open for attention: %w", number, ErrNotFound)
}

// Append adds tokens at the end of a layer; full groups of them are durable when it returns.
func (s *Session) Append(ctx context.Context, m *Tail) (Timing, Work, error) {
	q, err := s.findAttended(m.Seq)
	if err != nil {
		return Timing{}, Work{}, err
	}
	t := s.d.begin(len(m.Keys) + len(m.Values))
	t.LinkNs = uint64(hardware.Crossing(len(m.Keys)+len(m.Values), s.d.opts.Profile.Link.ToDriveBytesPerS))
	q.mu.Lock()
	programmed, err := s.d.appendTail(q, m)
	q.mu.Unlock()
	if err != nil {
		return Timing{}, Work{}, err
	}
	done := t.programmed(programmed) + hardware.Micros(s.d.opts.Profile.Link.LatencyUs)
	if err := t.until(ctx, done); err != nil {
		return Timing{}, Work{}, err
	}
	return t.end(done), Work{PagesProgrammed: uint64(len(programmed))}, nil
}

// programmed charges pages that are written and returns when they are.
func (t *task) programmed(pages []uint32) time.Duration {
	if len(pages) == 0 {
		return t.ready
	}
	done := t.d.model.program(t.ready, pages)
	t.NANDNs += uint64(t.d.model.alone(nand.Program, pages))
	t.NANDBytes += uint64(len(pages) * t.d.opts.Profile.NAND.PageBytes)
	return done
}

// appendTail checks and stores new tokens, and adds their values up; q.mu is held.
func (d *Drive) appendTail(q *attended, m *Tail) (programmed []uint32, err error) {
	shape := &q.shape
	if m.Layer >= shape.Layers || m.Tokens < 0 || len(m.Keys) != m.Tokens*shape.Heads*shape.KeyRowBytes() || len(m.Values) != m.Tokens*shape.Heads*shape.ValueRowBytes() {
		return nil, fmt.Errorf("csdshim: append of %d tokens to layer %d with %d and %d bytes: want a layer below %d, %d and %d bytes a token: %w",
			m.Tokens, m.Layer, len(m.Keys), len(m.Values), shape.Layers, shape.Heads*shape.KeyRowBytes(), shape.Heads*shape.ValueRowBytes(), ErrRequest)
	}
	sums, err := d.valueSums(q, m.Layer)
	if err != nil {
		return nil, err
	}
	switch have := d.store.TokensKV(q.id, m.Layer); {
	case have == m.At+m.Tokens:
		return nil, nil // it came before, and the answer was lost
	case have != m.At || m.At+m.Tokens > maxPosition:
		return nil, fmt.Errorf("csdshim: append at token %d of layer %d, which has %d: %w", m.At, m.Layer, have, ErrRequest)
	}
	began := time.Now()
	programmed, err = d.store.AppendKV(q.id, m.Layer, m.Tokens, m.Keys, m.Values)
	d.counts.ioNs.Add(uint64(time.Since(began)))
	if err != nil {
		return nil, err
	}
	d.faults.corrupt(d, programmed)
	for i := range m.Tokens * shape.Heads {
		q.add(sums, i%shape.Heads, m.Values[i*shape.ValueRowBytes():][:shape.ValueRowBytes()])
	}
	return programmed, nil
}

// add adds a value to its head's sum, token after token in float32, as the host does.
func (q *attended) add(sums []float32, head int, value []byte) {
	kvpage.ReadRow(q.shape.Elem, value, q.row)
	kernels.Add(sums[head*q.shape.ValueDim:(head+1)*q.shape.ValueDim], q.row)
}

// valueSums are the sums of a layer's values, [Heads][ValueDim]; those of a sequence from before a restart are added up again.
// q.mu is held.
func (d *Drive) valueSums(q *attended, layer int) ([]float32, error) {
	shape := &q.shape
	if q.sums[layer] != nil {
		return q.sums[layer], nil
	}
	sums := make([]float32, shape.Heads*shape.ValueDim)
	if n := d.store.TokensKV(q.id, layer); n > 0 {
		tokens, values := make([]int32, n), make([]byte, n*shape.ValueRowBytes())
		for i := range tokens {
			tokens[i] = int32(i)
		}
		for h := range shape.Heads {
			if _, err := d.store.ReadKV(q.id, []flash.KVRead{{Layer: layer, Head: h, Part: flash.KVValues, Index: tokens, Dst: values}}); err != nil {
				return nil, err
			}
			for i := range tokens {
				q.add(sums, h, values[i*shape.ValueRowBytes():][:shape.ValueRowBytes()])
			}
		}
	}
	q.sums[layer] = sums
	return sums, nil
}
