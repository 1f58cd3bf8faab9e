package csdshim

import (
	"context"
	"fmt"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/hardware"
	"terrace/csdshim/wire"
)

// ReadStage says which of the engine's two reads of the flash is meant (InstInfer, Sec. IV-B).
type ReadStage uint8

// The engine's reads.
const (
	ReadToScore  ReadStage = iota // columns of chosen dimensions, and the keys of tokens without columns
	ReadToAttend                  // keys and values of chosen tokens
	readStages
)

// HeadReader reads what the engine asks for of one layer, through the filters, and notes pages for the accounts and the model.
type HeadReader struct {
	d        *Drive
	q        *attended
	layer, n int
	heads    []headWork
	work     Work
}

// headWork is what one KV head read and computed.
type headWork struct {
	pages    [readStages][flash.KVEmbeddings + 1][]uint32 // that left the flash, by stage and part
	bytes    [readStages]int                              // that came through the filters
	products [readStages]int                              // numbers that the kernels multiplied
}

// Embedded is how many tokens of the layer, from the first on, have columns.
func (r *HeadReader) Embedded() int { return r.d.store.EmbeddedKV(r.q.id, r.layer) }

// Read fills dst with rows of one part of a head: tokens or dimensions that rise (see flash.KVRead). The pages that hold them, but for those in the group
// buffer, are read and filtered. wanted says that the members were chosen by the algorithm, and are not read for want of columns.
func (r *HeadReader) Read(stage ReadStage, head int, part flash.KVPart, index []int32, dst []byte, wanted bool) error {
	if len(index) == 0 {
		return nil
	}
	if err := r.read(stage, head, part, flash.KVRead{Layer: r.layer, Head: head, Part: part, Index: index, Dst: dst}); err != nil {
		return err
	}
	if wanted {
		r.Want(part, index)
	}
	return nil
}

// ReadPairs fills keys and values with rows of a head's tokens, which rise, of a sequence whose pages have both: each page is read once.
// Their pages are counted as those of keys. wanted: see Read.
func (r *HeadReader) ReadPairs(stage ReadStage, head int, tokens []int32, keys, values []byte, wanted bool) error {
	if len(tokens) == 0 {
		return nil
	}
	if wanted {
		r.Want(flash.KVKeys, tokens)
	}
	return r.read(stage, head, flash.KVKeys, flash.KVRead{Layer: r.layer, Head: head, Part: flash.KVKeys, Index: tokens, Dst: keys}, flash.KVRead{Layer: r.layer, Head: head, Part: flash.KVValues, Index: tokens, Dst: values})
}

// read does reads of a head together; their pages are counted as a part's.
func (r *HeadReader) read(stage ReadStage, head int, part flash.KVPart, reads ...flash.KVRead) error {
	began := time.Now()
	pages, err := r.d.store.ReadKV(r.q.id, reads)
	r.d.counts.ioNs.Add(uint64(time.Since(began)))
	if err != nil {
		return err
	}
	w := &r.heads[head]
	w.pages[stage][part] = append(w.pages[stage][part], pages...)
	for i := range reads {
		w.bytes[stage] += len(reads[i].Dst)
	}
	r.work.PagesRead += uint64(len(pages))
	return nil
}

// Want counts the full pages of a head that hold a chosen token or dimension, read now or before.
func (r *HeadReader) Want(part flash.KVPart, index []int32) {
	shape := &r.q.shape
	group, each, full := int32(shape.TokenGroup), uint64(1), int32(r.n/shape.TokenGroup)
	if part == flash.KVEmbeddings {
		group, each, full = int32(shape.EmbeddingGroup), uint64(r.Embedded()/shape.EmbeddingTokens(r.d.opts.Profile.NAND.PageBytes)), int32(shape.KeyDim)
	}
	last := int32(-1)
	for _, i := range index {
		if g := i / group; g != last && g < full {
			last = g
			r.work.PagesWanted += each
		}
	}
}

// Scored and Attended count tokens of one KV head, and the numbers that the kernels multiplied for them.
func (r *HeadReader) Scored(head, tokens, products int) {
	r.work.TokensScored += uint64(tokens)
	r.heads[head].products[ReadToScore] += products
}

// Attended: see Scored.
func (r *HeadReader) Attended(head, tokens, products int) {
	r.work.TokensAttended += uint64(tokens)
	r.heads[head].products[ReadToAttend] += products
}

// Attend appends the newest token of a layer and computes the layer's attention over all tokens that it has.
func (s *Session) Attend(ctx context.Context, m *AttendQuery) (Timing, Attended, error) {
	q, err := s.findAttended(m.Tail.Seq)
	if err != nil {
		return Timing{}, Attended{}, err
	}
	d, shape := s.d, &q.shape
	heads := len(m.Q) / shape.KeyDim
	if heads < 1 || heads*shape.KeyDim != len(m.Q) || heads%shape.Heads != 0 || 4*heads*shape.ValueDim > wire.MaxAttendBytes ||
		m.Dims > 0 && (m.Dims > shape.KeyDim || m.Best < 1 || m.Local < 1) {
		return Timing{}, Attended{}, fmt.Errorf("csdshim: attention of %d numbers of queries with r=%d, k=%d, l=%d: want whole heads of %d, a multiple of %d, and r up to %d: %w",
			len(m.Q), m.Dims, m.Best, m.Local, shape.KeyDim, shape.Heads, shape.KeyDim, ErrRequest)
	}
	down := len(m.Tail.Keys) + len(m.Tail.Values) + 4*len(m.Q)
	t := d.begin(down)
	q.mu.Lock()
	programmed, err := d.appendTail(q, &m.Tail)
	if err != nil {
		q.mu.Unlock()
		return Timing{}, Attended{}, err
	}
	r := &HeadReader{d: d, q: q, layer: m.Tail.Layer, n: d.store.TokensKV(q.id, m.Tail.Layer), heads: make([]headWork, shape.Heads)}
	out := Attended{Out: make([]float32, heads*shape.ValueDim), Max: make([]float32, heads), LogSum: make([]float32, heads)}
	d.engine.Lock()
	began := time.Now()
	if r.n == 0 {
		err = fmt.Errorf("csdshim: attention to layer %d, which has no tokens: %w", m.Tail.Layer, ErrRequest)
	} else {
		err = d.opts.Attention.Attend(shape, m, r.n, q.sums[m.Tail.Layer], r, &out)
	}
	d.counts.engineNs.Add(uint64(time.Since(began)))
	d.engine.Unlock()
	q.mu.Unlock()
	if err != nil {
		return Timing{}, Attended{}, err
	}
	t.programmed(programmed)
	out.Work = r.work
	out.Work.PagesProgrammed = uint64(len(programmed))
	up := 4 * len(out.Out)
	var log *stageLog
	if m.Traced {
		log = &stageLog{arrived: t.arrived}
		log.note(wire.UnitLink, 0, t.arrived, t.arrived+hardware.Crossing(down, d.opts.Profile.Link.ToDriveBytesPerS))
	}
	sent := d.model.send(t.stages(r, log), up)
	if log != nil {
		log.note(wire.UnitLink, 1, sent-hardware.Crossing(up, d.opts.Profile.Link.ToHostBytesPerS), sent)
		out.Stages = log.list
	}
	t.LinkNs += uint64(hardware.Crossing(down, d.opts.Profile.Link.ToDriveBytesPerS) + hardware.Crossing(up, d.opts.Profile.Link.ToHostBytesPerS))
	t.LinkBytes = uint64(up)
	d.counts.linkOut.Add(uint64(up))
	d.counts.tokensScored.Add(r.work.TokensScored)
	done := sent + hardware.Micros(d.opts.Profile.Link.LatencyUs)
	if err := t.until(ctx, done); err != nil {
		return Timing{}, Attended{}, err
	}
	return t.end(done), out, nil
}

// Append and Attend of a connection.

func (c *conn) openAttend(payload []byte) error {
	m, err := wire.ParseOpenAttend(payload)
	if err != nil {
		return err
	}
	return c.s.OpenAttended(m.Seq, m.Shape)
}

func (c *conn) appendTail(ctx context.Context, payload []byte) (Timing, []byte, error) {
	m, err := wire.ParseTail(payload)
	if err != nil {
		return Timing{}, nil, err
	}
	t, work, err := c.s.Append(ctx, &m)
	return t, Attended{Work: work}.Append(nil), err
}

func (c *conn) attend(ctx context.Context, payload []byte) (Timing, []byte, error) {
	m, err := wire.ParseAttend(payload)
	if err != nil {
		return Timing{}, nil, err
	}
	t, out, err := c.s.Attend(ctx, &m)
	return t, out.Append(nil), err
}
