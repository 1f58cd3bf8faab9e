package offload

import (
	"context"
	"fmt"
	"sync"
	"time"

	"terrace/csdshim"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/internal/trace"
	"terrace/policy"
)

// Attender holds the keys and values of whole sequences and computes attention over them: computational storage drives
// (InstInfer, arXiv 2409.04992). It is no Store: what went down is not read back. Errors are retried as the package documentation says; after
// that they wrap ErrTier.
type Attender interface {
	// Open begins a sequence under a number that no other has or had.
	Open(ctx context.Context, seq uint64, groups Groups) error
	// Append adds tokens at the end of a layer: keys [tokens][KVHeads][KeyDim] and values [tokens][KVHeads][ValueDim] as stored.
	Append(ctx context.Context, seq uint64, layer, at, tokens int, keys, values []byte) error
	// Attend begins a step of one layer. What it points to is the attender's until Wait has returned.
	Attend(ctx context.Context, s *AttendStep) *Attending
	// Drop forgets a sequence; one that is not there is no error.
	Drop(seq uint64) error
	// Use is what each drive has done so far.
	Use() []DriveUse
	// ResetPeak begins each drive's PeakBytes again from what it holds now.
	ResetPeak()
	Close() error
}

// Groups say how a sequence's keys lie in flash pages; 0 = chosen by what is expected.
type Groups struct {
	Dims, Tokens int // the paper's m and n; with either, keys and values have pages of their own, as in the paper
	Expected     int // tokens that the sequence will have, as far as it is known
	Columns      bool
}

// AttendStep is the attention of one sequence's newest token in a layer.
type AttendStep struct {
	Seq            uint64
	Layer, At      int       // tokens that the layer had before
	Keys, Values   []byte    // of the newest token, [KVHeads][dim] as stored
	Q              []float32 // [Heads, KeyDim]
	Exact          bool
	Scale, Softcap float32
	Window         int // newest tokens; 0 = all
	SparF          policy.SparF
	Out            []float32 // [Heads, ValueDim]
}

// AttendShape is the attention of a model, as stored.
type AttendShape struct {
	Layers, Heads, KVHeads, KeyDim, ValueDim int
	Elem                                     kvpage.Elem // of keys and values: f32, f16 or bf16
	Fingerprint                              [32]byte
}

// DriveUse is what one drive has done, by its own account and its model's.
type DriveUse struct {
	Socket                    string
	KVHeads                   int
	ToDriveBytes, ToHostBytes int64 // payloads: keys, values and queries; outputs
	Work                      csdshim.Work
	LinkNs, NANDNs, EngineNs  uint64 // modelled
	HeldBytes, PeakBytes      int64  // keys and values held now; most at a time
	Paced                     bool   // its times on the wall are those of the profile that it mimics
}

// Drives shard the KV heads of each sequence over drives that attend; outputs lie side by side, and no drive talks to another.
// Heads that do not divide evenly go to the first drives.
type Drives struct {
	shape  AttendShape
	clock  clock.Clock
	drives []*attendDrive
}

// attendDrive is one of them, with the KV heads from first to end-1.
type attendDrive struct {
	csd        *CSD
	shape      AttendShape
	number     int // among the drives
	first, end int
	trace      *trace.Recorder

	mu     sync.Mutex
	shapes map[uint64]csdshim.AttendShape
	held   map[uint64]int64 // bytes by sequence
	bytes  int64
	use    DriveUse
}

// DrivesOptions of OpenDrives.
type DrivesOptions struct {
	Clock clock.Clock // what drives are waited for on; nil = clock.Real
	Trace *trace.Recorder
	Dial  Dial // how drives are reached
}

// OpenDrives dials drives at Unix sockets. ErrModel where there are more drives than KV heads, csdshim.ErrUnsupported where one
// cannot attend.
func OpenDrives(ctx context.Context, sockets []string, shape AttendShape, o DrivesOptions) (*Drives, error) {
	if len(sockets) > shape.KVHeads {
		return nil, fmt.Errorf("offload: %d drives for %d KV heads, want at most one a head: %w", len(sockets), shape.KVHeads, ErrModel)
	}
	d := &Drives{shape: shape, clock: clock.Or(o.Clock)}
	first := 0
	for i, socket := range sockets {
		n := (shape.KVHeads - first + len(sockets) - i - 1) / (len(sockets) - i)
		a := &attendDrive{shape: shape, number: i, trace: o.Trace, first: first, end: first + n, shapes: map[uint64]csdshim.AttendShape{}, held: map[uint64]int64{}, use: DriveUse{Socket: socket, KVHeads: n}}
		a.csd = &CSD{dialled: dialled{socket: socket, o: CSDOptions{Clock: o.Clock, Dial: o.Dial}, opened: map[uint64]bool{}, open: a.open}, stored: map[Key]struct{}{}}
		first += n
		err := a.csd.dial(ctx)
		if err == nil {
			d.drives = append(d.drives, a)
			id := a.csd.Identity()
			if a.use.Paced = id.Paced(); !id.CanAttend {
				err = fmt.Errorf("offload: drive %s has profile %s, which has no engine that attends: %w", socket, id.Profile, csdshim.ErrUnsupported)
			}
		}
		if err != nil {
			_ = d.Close() // the first reason counts
			return nil, err
		}
	}
	return d, nil
}

// open opens a sequence on a connection.
func (a *attendDrive) open(ctx context.Context, client Link, seq uint64) error {
	a.mu.Lock()
	shape, ok := a.shapes[seq]
	a.mu.Unlock()
	if !ok {
		return fmt.Errorf("offload: sequence %d was never opened: %w", seq, ErrMissing)
	}
	return client.OpenAttended(ctx, seq, shape)
}

// Open implements Attender.
func (d *Drives) Open(ctx context.Context, seq uint64, groups Groups) error {
	return d.each(func(a *attendDrive) error {
		shape := a.lie(groups)
		a.mu.Lock()
		a.shapes[seq] = shape
		a.mu.Unlock()
		return a.csd.again(ctx, func() error {
			_, err := a.csd.sequence(ctx, seq)
			return err
		})
	})
}

// lie says how a sequence lies on the drive's pages. m is the smallest of 2, 4 and 8 whose pages hold no more tokens than
// are expected, else 8; n as many tokens as a page holds. Where tokens are chosen, and neither m nor n is given, keys and values share pages:
// a chosen token has one page, not two of twice as many tokens.
func (a *attendDrive) lie(g Groups) csdshim.AttendShape {
	s := csdshim.AttendShape{Elem: a.shape.Elem, Fingerprint: a.shape.Fingerprint}
	s.Layers, s.Heads, s.KeyDim, s.ValueDim, s.ElemBytes = a.shape.Layers, a.end-a.first, a.shape.KeyDim, a.shape.ValueDim, a.shape.Elem.Bits()/8
	page := int(a.csd.Identity().PageBytes)
	s.TokenGroup = g.Tokens
	if pair := s.KeyRowBytes() + s.ValueRowBytes(); g.Tokens == 0 && g.Dims == 0 && g.Columns && 2*pair <= page {
		s.Paired, s.TokenGroup = true, page/pair
	} else if g.Tokens == 0 {
		s.TokenGroup = max(1, page/max(s.KeyRowBytes(), s.ValueRowBytes()))
	}
	if !g.Columns {
		return s
	}
	if s.EmbeddingGroup = g.Dims; s.EmbeddingGroup == 0 {
		for s.EmbeddingGroup = 2; s.EmbeddingGroup < 8 && s.EmbeddingTokens(page) > g.Expected; s.EmbeddingGroup *= 2 {
		}
	}
	return s
}

// each does something for all drives at the same time; the first error in their order counts.
func (d *Drives) each(do func(a *attendDrive) error) error {
	errs, over := make([]error, len(d.drives)), make([]chan struct{}, len(d.drives))
	for i, a := range d.drives[1:] {
		done := make(chan struct{})
		over[i+1] = done
		clock.Go(d.clock, func() {
			defer close(done)
			errs[i+1] = do(a)
		})
	}
	errs[0] = do(d.drives[0])
	for _, done := range over[1:] {
		clock.Wait(d.clock, done, nil)
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// part is the drive's heads of rows [tokens][KVHeads][size].
func (a *attendDrive) part(rows []byte, tokens, size int) []byte {
	if a.first == 0 && a.end == a.shape.KVHeads {
		return rows
	}
	width := a.shape.KVHeads * size
	out := make([]byte, 0, tokens*(a.end-a.first)*size)
	for i := range tokens {
		out = append(out, rows[i*width+a.first*size:i*width+a.end*size]...)
	}
	return out
}

// tail is the drive's part of new tokens.
func (a *attendDrive) tail(seq uint64, layer, at, tokens int, keys, values []byte) csdshim.Tail {
	e := a.shape.Elem.Bits() / 8
	return csdshim.Tail{Seq: seq, Layer: layer, At: at, Tokens: tokens, Keys: a.part(keys, tokens, a.shape.KeyDim*e), Values: a.part(values, tokens, a.shape.ValueDim*e)}
}

// Append implements Attender.
func (d *Drives) Append(ctx context.Context, seq uint64, layer, at, tokens int, keys, values []byte) error {
	return d.each(func(a *attendDrive) error {
		m := a.tail(seq, layer, at, tokens, keys, values)
		var t csdshim.Timing
		var work csdshim.Work
		err := a.csd.again(ctx, func() error {
			client, shape, err := a.sequence(ctx, seq)
			if err != nil {
				return err
			}
			if t, work, err = client.Append(ctx, &shape, &m); err != nil {
				return a.csd.suspect(client, err)
			}
			return nil
		})
		a.count(t, work, seq, len(m.Keys)+len(m.Values), 0, 0)
		return err
	})
}

func (a *attendDrive) sequence(ctx context.Context, seq uint64) (Link, csdshim.AttendShape, error) {
	client, err := a.csd.sequence(ctx, seq)
	a.mu.Lock()
	defer a.mu.Unlock()
	return client, a.shapes[seq], err
}

// count adds what a call cost.
func (a *attendDrive) count(t csdshim.Timing, work csdshim.Work, seq uint64, kv, query, up int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := &a.use
	u.ToDriveBytes, u.ToHostBytes = u.ToDriveBytes+int64(kv+query), u.ToHostBytes+int64(up)
	u.LinkNs, u.NANDNs, u.EngineNs = u.LinkNs+t.LinkNs, u.NANDNs+t.NANDNs, u.EngineNs+t.EngineNs
	u.Work.Add(work)
	a.held[seq] += int64(kv)
	a.bytes += int64(kv)
	u.PeakBytes = max(u.PeakBytes, a.bytes)
}

// ResetPeak implements Attender.
func (d *Drives) ResetPeak() {
	for _, a := range d.drives {
		a.mu.Lock()
		a.use.PeakBytes = a.bytes
		a.mu.Unlock()
	}
}

// Attending is a step under way.
type Attending struct {
	clock clock.Clock
	done  chan struct{}
	err   error
}

// Wait returns when the step's Out is filled, or why it is not.
func (a *Attending) Wait() error {
	clock.Wait(a.clock, a.done, nil)
	return a.err
}

// Attend implements Attender.
func (d *Drives) Attend(ctx context.Context, s *AttendStep) *Attending {
	t := &Attending{clock: d.clock, done: make(chan struct{})}
	clock.Go(d.clock, func() {
		defer close(t.done)
		t.err = d.each(func(a *attendDrive) error { return a.attend(ctx, s) })
	})
	return t
}

func (a *attendDrive) attend(ctx context.Context, s *AttendStep) error {
	group := a.shape.Heads / a.shape.KVHeads
	m := csdshim.AttendQuery{Traced: a.trace != nil, Tail: a.tail(s.Seq, s.Layer, s.At, 1, s.Keys, s.Values), Exact: s.Exact, Scale: s.Scale, Softcap: s.Softcap, Window: s.Window,
		Dims: s.SparF.Dims, Best: s.SparF.Tokens, Local: s.SparF.Local, Q: s.Q[a.first*group*a.shape.KeyDim : a.end*group*a.shape.KeyDim]}
	var t csdshim.Timing
	var got csdshim.Attended
	began := a.trace.Now()
	err := a.csd.again(ctx, func() error {
		client, shape, err := a.sequence(ctx, s.Seq)
		if err != nil {
			return err
		}
		if t, got, err = client.Attend(ctx, &shape, &m); err != nil {
			return a.csd.suspect(client, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.count(t, got.Work, s.Seq, len(m.Tail.Keys)+len(m.Tail.Values), 4*len(m.Q), 4*len(got.Out))
	a.show(s.Layer, began, got.Stages)
	copy(s.Out[a.first*group*a.shape.ValueDim:], got.Out)
	return nil
}

// show puts what the drive's units did for a layer, by the model of the drive, on the timeline, a line for each unit.
func (a *attendDrive) show(layer int, began time.Duration, stages []csdshim.Stage) {
	if a.trace == nil {
		return
	}
	for _, s := range stages {
		row := trace.DriveEngine
		switch s.Unit {
		case csdshim.UnitLink:
			row = trace.DriveLink
		case csdshim.UnitNAND:
			row = trace.DriveNAND
		}
		unit := fmt.Sprintf("drive %d %v %d (modelled)", a.number, s.Unit, s.Lane)
		a.trace.Lane(row, unit, a.number<<16|int(s.Unit)<<8|int(s.Lane), "layer", layer, began+time.Duration(s.From), began+time.Duration(s.To))
	}
}

// Drop implements Attender.
func (d *Drives) Drop(seq uint64) error {
	return d.each(func(a *attendDrive) error {
		a.mu.Lock()
		a.bytes -= a.held[seq]
		delete(a.held, seq)
		delete(a.shapes, seq)
		a.mu.Unlock()
		return a.csd.forget(seq)
	})
}

// Use implements Attender.
func (d *Drives) Use() (all []DriveUse) {
	for _, a := range d.drives {
		a.mu.Lock()
		u := a.use
		u.HeldBytes = a.bytes
		all = append(all, u)
		a.mu.Unlock()
	}
	return all
}

// Close drops what is stored and ends the connections.
func (d *Drives) Close() error {
	if len(d.drives) == 0 {
		return nil
	}
	return d.each(func(a *attendDrive) error { return a.csd.Close() })
}
