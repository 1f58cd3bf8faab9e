package csdshim

import (
	"context"
	"fmt"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/hardware"
	"terrace/csdshim/wire"
	"terrace/internal/kernels"
)

// Group names a group of 16 tokens of a layer, with the bytes that belong to it.
type Group struct {
	Layer, Index int
	Data         []byte // record: KVHeads pages one after another, Shape.RecordBytes
}

// task accounts one request's time.
type task struct {
	d       *Drive
	arrived time.Duration // on the drive's clock
	began   time.Time
	ready   time.Duration // when the request, command and all, was in the drive
	Timing
}

// begin takes note of a request of n bytes.
func (d *Drive) begin(n int) *task {
	t := &task{d: d, arrived: d.clock.Now(), began: time.Now()}
	t.ready = d.model.arrive(t.arrived, n)
	d.counts.linkIn.Add(uint64(n))
	return t
}

// until waits for a modelled time, in real time only.
func (t *task) until(ctx context.Context, at time.Duration) error {
	return wait(ctx, t.d.clock, at-t.d.clock.Now())
}

// end closes the account at a modelled time.
func (t *task) end(at time.Duration) Timing {
	t.TotalNs = uint64(at - t.arrived)
	t.MeasuredNs = uint64(time.Since(t.began))
	parts := t.NANDNs + t.EngineNs + t.LinkNs
	if command := uint64(t.ready - t.arrived); t.TotalNs > command+parts {
		t.QueueNs = t.TotalNs - command - parts
	}
	return t.Timing
}

func (q *sequence) key(layer, group int) (flash.Key, error) {
	if layer < 0 || layer >= q.layout.shape.Layers || group < 0 || group > maxPosition/wire.GroupTokens {
		return flash.Key{}, fmt.Errorf("csdshim: layer %d, group %d: want layers below %d and groups up to %d: %w", layer, group, q.layout.shape.Layers, maxPosition/wire.GroupTokens, ErrRequest)
	}
	return flash.Key{Seq: q.id, Layer: int32(layer), Group: int32(group)}, nil
}

// Write stores groups, all or none, replacing those that were there; they are durable when it returns.
func (s *Session) Write(ctx context.Context, number uint64, groups []Group) (Timing, error) {
	q, err := s.find(number)
	if err != nil {
		return Timing{}, err
	}
	d, shape := s.d, q.layout.shape
	record := shape.RecordBytes()
	t := d.begin(len(groups) * record)
	items := make([]flash.Item, len(groups))
	room := borrow(len(groups) * record)
	defer giveBack(room)
	packed := *room
	for i, g := range groups {
		key, err := q.key(g.Layer, g.Index)
		if err != nil {
			return Timing{}, err
		}
		if g.Index >= q.room {
			return Timing{}, fmt.Errorf("csdshim: layer %d, group %d of %d bytes: the drive can hold groups 0 to %d: %w", g.Layer, g.Index, record, q.room-1, ErrFull)
		}
		if len(g.Data) != record {
			return Timing{}, fmt.Errorf("csdshim: layer %d, group %d: %d bytes, want %d: %w", g.Layer, g.Index, len(g.Data), record, ErrRequest)
		}
		stored := packed[i*record : (i+1)*record]
		q.layout.pack(stored, g.Data)
		items[i] = flash.Item{Key: key, Parts: [][]byte{stored}}
	}
	began := time.Now()
	pages, err := d.store.Put(items)
	d.counts.ioNs.Add(uint64(time.Since(began)))
	if err != nil {
		return Timing{}, err
	}
	d.faults.corrupt(d, pages)
	for i, g := range groups {
		d.codes.written(q, g.Layer, g.Index, packed[i*record:(i+1)*record])
	}
	d.counts.groupsWritten.Add(uint64(len(groups)))
	done := d.programmed(t, pages)
	t.NANDNs, t.NANDBytes = uint64(done-t.ready), uint64(len(pages)*d.opts.Profile.NAND.PageBytes)
	done += hardware.Micros(d.opts.Profile.Link.LatencyUs)
	if err := t.until(ctx, done); err != nil {
		return Timing{}, err
	}
	return t.end(done), nil
}

// programmed charges written pages, behind what the flash had to collect for them.
func (d *Drive) programmed(t *task, pages []uint32) (done time.Duration) {
	d.model.collect(t.ready, d.store.Housekeeping())
	return d.model.program(t.ready, pages)
}

// Read fills the Data of groups, which are stored.
func (s *Session) Read(ctx context.Context, number uint64, groups []Group) (Timing, error) {
	return s.read(ctx, number, groups, false)
}

// read is Read; Data that another process reads next (out) are filled past the processor's caches, from a record that lies in them.
func (s *Session) read(ctx context.Context, number uint64, groups []Group, out bool) (Timing, error) {
	q, err := s.find(number)
	if err != nil {
		return Timing{}, err
	}
	d, record, n := s.d, q.layout.shape.RecordBytes(), len(groups)
	t := d.begin(16 + 8*n)
	keys := make([]flash.Key, n)
	for i, g := range groups {
		if keys[i], err = q.key(g.Layer, g.Index); err != nil {
			return Timing{}, err
		}
	}
	room := borrow(record)
	defer giveBack(room)
	began := time.Now()
	pages, err := d.store.Visit(keys, record, func(i int, pages [][]byte) {
		if !out {
			q.layout.unpack(groups[i].Data, pages)
			return
		}
		q.layout.unpack(*room, pages)
		kernels.CopyOut(groups[i].Data, *room)
	})
	d.counts.ioNs.Add(uint64(time.Since(began)))
	if err != nil {
		return Timing{}, err
	}
	d.counts.groupsRead.Add(uint64(n))
	return t.deliver(ctx, pages, n*record)
}

// deliver charges the pages that were read and the bytes that cross the link, and waits for it.
func (t *task) deliver(ctx context.Context, pages []uint32, bytes int) (Timing, error) {
	d := t.d
	read := d.model.read(t.ready, pages)
	t.NANDNs, t.NANDBytes = uint64(read-t.ready), uint64(len(pages)*d.opts.Profile.NAND.PageBytes)
	// The link carries what has been read while the rest is being read: it ends with the reading at the earliest.
	sent := max(d.model.send(t.ready, bytes), read)
	t.LinkNs, t.LinkBytes = uint64(hardware.Crossing(bytes, d.opts.Profile.Link.ToHostBytesPerS)), uint64(bytes)
	done := sent + hardware.Micros(d.opts.Profile.Link.LatencyUs)
	d.counts.linkOut.Add(uint64(bytes))
	if err := t.until(ctx, done); err != nil {
		return Timing{}, err
	}
	return t.end(done), nil
}

// Gather fills dst with the tokens at positions, which rise, one after another: ⌈n/16⌉ records of the sequence's shape,
// as if these were the only tokens; unused slots are zero. Only the flash pages of these tokens are read, and only their
// bytes are charged to the link.
func (s *Session) Gather(ctx context.Context, number uint64, layer int, positions []int32, dst []byte) (Timing, error) {
	return s.gather(ctx, number, layer, positions, dst, false)
}

// gather is Gather; a dst that another process reads next (out) is filled as by read.
func (s *Session) gather(ctx context.Context, number uint64, layer int, positions []int32, dst []byte, out bool) (Timing, error) {
	q, err := s.find(number)
	if err != nil {
		return Timing{}, err
	}
	l := &q.layout
	if !l.byToken {
		return Timing{}, fmt.Errorf("csdshim: %v keys share scales over a group: read whole groups: %w", l.shape.Page.K, ErrUnsupported)
	}
	if want := gatherBytes(l.shape, len(positions)); len(dst) != want {
		return Timing{}, fmt.Errorf("csdshim: %d tokens into %d bytes, want %d: %w", len(positions), len(dst), want, ErrRequest)
	}
	d := s.d
	t := d.begin(16 + 4*len(positions))
	room := borrow(len(positions) * l.shape.TokenBytes())
	defer giveBack(room)
	stored := *room
	reqs, err := q.runs(layer, positions, stored)
	if err != nil {
		return Timing{}, err
	}
	began := time.Now()
	pages, err := d.store.Get(reqs)
	d.counts.ioNs.Add(uint64(time.Since(began)))
	if err != nil {
		return Timing{}, err
	}
	if out {
		records := borrow(len(dst))
		defer giveBack(records)
		q.compact(positions, stored, *records)
		kernels.CopyOut(dst, *records)
	} else {
		q.compact(positions, stored, dst)
	}
	d.counts.tokensGathered.Add(uint64(len(positions)))
	return t.deliver(ctx, pages, len(positions)*l.shape.TokenBytes())
}

// gatherBytes is the size of n gathered tokens: whole records.
func gatherBytes(s Shape, n int) int {
	return (n + wire.GroupTokens - 1) / wire.GroupTokens * s.RecordBytes()
}

// runs are the requests for tokens, neighbours in a group together, into stored: a token's key rows and then its value
// rows, one after another.
func (q *sequence) runs(layer int, positions []int32, stored []byte) (reqs []flash.Request, err error) {
	l := &q.layout
	keys, values := l.shape.KVHeads*l.keyRow(), l.shape.KVHeads*l.valueRow()
	reqs = make([]flash.Request, 0, 2*len(positions))
	for i := 0; i < len(positions); {
		p := positions[i]
		if p < 0 || p > maxPosition || i > 0 && p <= positions[i-1] {
			return nil, fmt.Errorf("csdshim: position %d at place %d: want rising positions from 0 to %d: %w", p, i, maxPosition, ErrRequest)
		}
		n := 1
		for i+n < len(positions) && positions[i+n] == p+int32(n) && int(p)%wire.GroupTokens+n < wire.GroupTokens {
			n++
		}
		key, err := q.key(layer, int(p)/wire.GroupTokens)
		if err != nil {
			return nil, err
		}
		at, size, parts := l.spans(int(p)%wire.GroupTokens, n)
		to := i * (keys + values)
		for j := range parts {
			reqs = append(reqs, flash.Request{Key: key, Off: at[j], Dst: stored[to : to+size[j]]})
			to += size[j]
		}
		i += n
	}
	return reqs, nil
}

// compact writes what runs has read as records.
func (q *sequence) compact(positions []int32, stored, dst []byte) {
	l := &q.layout
	clear(dst)
	page, record := l.shape.Page.PageBytes(), l.shape.RecordBytes()
	keys, values := l.shape.KVHeads*l.keyRow(), l.shape.KVHeads*l.valueRow()
	for i := 0; i < len(positions); {
		n := 1
		for i+n < len(positions) && positions[i+n] == positions[i]+int32(n) && int(positions[i])%wire.GroupTokens+n < wire.GroupTokens {
			n++
		}
		run := stored[i*(keys+values) : (i+n)*(keys+values)]
		for t := range n {
			slot := (i + t) % wire.GroupTokens
			rec := dst[(i+t)/wire.GroupTokens*record:][:record]
			for h := range l.shape.KVHeads {
				key, value := run[t*(keys+values)+h*(l.keyRow()+l.valueRow()):], []byte(nil)
				if l.split {
					key, value = run[t*keys+h*l.keyRow():], run[n*keys+t*values+h*l.valueRow():]
				} else {
					value = key[l.keyRow():]
				}
				l.place(rec[h*page:(h+1)*page], slot, key, value[:l.valueRow()])
			}
		}
		i += n
	}
}
