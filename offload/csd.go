package offload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"terrace/csdshim"
	"terrace/internal/cacheshape"
	"terrace/internal/clock"
)

// CSDOptions of OpenCSD.
type CSDOptions struct {
	// Codes is what the drive makes of the keys to score them; CodesNone stores only.
	Codes csdshim.Codes
	// Clock is what the waits between dials are measured on; default clock.Real.
	Clock clock.Clock
	// Timeout is what a call may take before the drive counts as stalled; default csdshim.ClientOptions's.
	Timeout time.Duration
	Dial    Dial // how drives are reached
}

// CSD is a Store on a computational storage drive in another process. Besides storing, the drive scores keys (Score) and
// hands out single tokens (Gather). When the drive dies or stalls, calls fail with csdshim.ErrLost or csdshim.ErrTimeout, and
// the next call dials. SetScales, Score and Place are done a second time here where that may help, since no queue carries them.
type CSD struct {
	dialled
	shape  Shape
	wire   csdshim.Shape
	stored map[Key]struct{}
	stats  Stats
}

// dialled is the connection to a drive, made again where it ends.
type dialled struct {
	socket string
	open   func(ctx context.Context, client Link, seq uint64) error // a sequence on a connection
	owner  [16]byte                                                 // the same for all connections
	o      CSDOptions

	mu     sync.Mutex
	client Link
	opened map[uint64]bool
	closed bool

	redialing sync.Mutex
	gone      bool // the last dials were in vain; redialing
	unproven  bool // nothing was answered on the connection that was dialled last; under redialing
}

// OpenCSD dials the drive at a Unix socket. Records are groups of 16 tokens in pages of 16.
func OpenCSD(ctx context.Context, socket string, shape Shape, o CSDOptions) (*CSD, error) {
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	if shape.GroupTokens != csdshim.GroupTokens || shape.Page.Tokens != csdshim.GroupTokens {
		return nil, fmt.Errorf("offload: csd: groups of %d tokens in pages of %d, a drive takes %d in pages of %d: %w", shape.GroupTokens, shape.Page.Tokens, csdshim.GroupTokens, csdshim.GroupTokens, ErrShape)
	}
	if slices.ContainsFunc(shape.Layers, func(l cacheshape.Layer) bool { return l.KV.Type > 0 }) {
		return nil, fmt.Errorf("offload: csd: a drive takes one type of numbers in all layers: %w", ErrModel)
	}
	_, kv, same := shape.Layers.Same()
	if !same || kv.ValueInKey {
		return nil, fmt.Errorf("offload: csd: a drive scores keys of one shape in all layers, and this model's layers differ, share keys, keep latent ones, or keep none: %w", ErrModel)
	}
	c := &CSD{dialled: dialled{socket: socket, o: o, opened: map[uint64]bool{}}, shape: shape, stored: map[Key]struct{}{},
		wire: csdshim.Shape{Layers: len(shape.Layers), KVHeads: kv.Heads, Page: shape.Page.Of(kv), Codes: o.Codes, Fingerprint: shape.Fingerprint}}
	c.open = func(ctx context.Context, client Link, seq uint64) error {
		return client.OpenSequence(ctx, seq, c.wire)
	}
	if err := c.dial(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// dial makes the first connection.
func (c *CSD) dial(ctx context.Context) error {
	if c.o.Clock == nil {
		c.o.Clock = clock.Real()
	}
	client, err := c.o.Dial.dial(ctx, c.socket, csdshim.ClientOptions{Timeout: c.o.Timeout})
	if err != nil {
		return fmt.Errorf("offload: %w", err)
	}
	c.client, c.owner = client, client.Owner()
	id := client.Identity()
	c.stats = Stats{CapacityBytes: int64(id.CapacityBytes), Paced: id.Paced()}
	return nil
}

// Name is "csd".
func (c *CSD) Name() string { return "csd" }

// Scores is what the drive makes of the keys.
func (c *CSD) Scores() csdshim.Codes {
	if !c.Identity().CanScore {
		return csdshim.CodesNone
	}
	return c.o.Codes
}

// Shape is what its records are.
func (c *CSD) Shape() Shape { return c.shape }

// RoundTrip is the shortest of three round trips of an empty question, measured now.
func (c *dialled) RoundTrip(ctx context.Context) (time.Duration, error) {
	client, least := c.connection(), time.Duration(math.MaxInt64)
	for range 3 {
		began := c.o.Clock.Now()
		if _, err := client.Stats(ctx); err != nil {
			return 0, fmt.Errorf("offload: %w", err)
		}
		least = min(least, c.o.Clock.Now()-began)
	}
	return least, nil
}

// Identity is what the drive said about itself.
func (c *dialled) Identity() csdshim.Identity { return c.connection().Identity() }

// connection is the one in use, which may have ended.
func (c *dialled) connection() Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}

// sequence is the client, with the sequence open on it.
func (c *dialled) sequence(ctx context.Context, seq uint64) (Link, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("offload: csd: %w", ErrClosed)
	}
	client, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	there := c.client == client && c.opened[seq]
	c.mu.Unlock()
	if there {
		return client, nil
	}
	if err := c.open(ctx, client, seq); err != nil {
		return nil, c.suspect(client, err)
	}
	c.redialing.Lock()
	c.unproven = false
	c.redialing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == client {
		c.opened[seq] = true
	}
	return client, nil
}

// named adds this package's sentinel to the drive's error.
func (c *dialled) named(err error) error {
	for _, same := range [...]struct{ theirs, ours error }{{csdshim.ErrFull, ErrFull}, {csdshim.ErrCorrupt, ErrCorrupt}, {csdshim.ErrNotFound, ErrMissing}} {
		if errors.Is(err, same.theirs) {
			return fmt.Errorf("offload: %w (%w)", err, same.ours)
		}
	}
	return fmt.Errorf("offload: %w", err)
}

// Write stores whole records; they survive the drive's death when it returns.
func (c *CSD) Write(ctx context.Context, recs []Record) error {
	if err := c.shape.check(recs, true); err != nil {
		return err
	}
	return c.bySequence(recs, func(seq uint64, recs []Record) error {
		client, err := c.sequence(ctx, seq)
		if err != nil {
			return err
		}
		groups := make([]csdshim.Group, len(recs))
		for i, r := range recs {
			groups[i] = csdshim.Group{Layer: int(r.Key.Layer), Index: int(r.Key.Group), Data: r.Data}
		}
		if _, err := client.WriteGroups(ctx, seq, groups); err != nil {
			return c.suspect(client, err)
		}
		c.wrote(recs)
		return nil
	})
}

// wrote counts records that were stored.
func (c *CSD) wrote(recs []Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range recs {
		c.stored[r.Key] = struct{}{}
	}
	n := int64(len(recs)) * int64(c.wire.RecordBytes())
	c.stats.Writes++
	c.stats.WrittenBytes += n
	c.stats.DeviceWriteBytes += n
	c.stats.UsedBytes = int64(len(c.stored)) * int64(c.wire.RecordBytes())
	c.stats.PeakBytes = max(c.stats.PeakBytes, c.stats.UsedBytes)
}

// bySequence calls do for the records of each sequence, which lie together in most calls.
func (c *CSD) bySequence(recs []Record, do func(seq uint64, recs []Record) error) error {
	for len(recs) > 0 {
		n := 1
		for n < len(recs) && recs[n].Key.Seq == recs[0].Key.Seq {
			n++
		}
		if err := do(recs[0].Key.Seq, recs[:n]); err != nil {
			return err
		}
		recs = recs[n:]
	}
	return nil
}

// Read fills every Data. A Part crosses the link as a whole record.
func (c *CSD) Read(ctx context.Context, recs []Record) error {
	if err := c.shape.check(recs, false); err != nil {
		return err
	}
	return c.bySequence(recs, func(seq uint64, recs []Record) error {
		client, err := c.sequence(ctx, seq)
		if err != nil {
			return err
		}
		groups := make([]csdshim.Group, len(recs))
		asked := int64(0)
		for i, r := range recs {
			groups[i] = csdshim.Group{Layer: int(r.Key.Layer), Index: int(r.Key.Group), Data: r.Data}
			if r.Part != (Part{}) {
				groups[i].Data = make([]byte, c.wire.RecordBytes())
			}
			asked += int64(len(r.Data))
		}
		_, err = client.Fetch(ctx, seq, groups)
		c.read(asked, int64(len(recs)*c.wire.RecordBytes()), errors.Is(err, csdshim.ErrCorrupt))
		if err != nil {
			return c.suspect(client, err)
		}
		for i, r := range recs {
			if r.Part != (Part{}) {
				from, size := c.shape.span(int(r.Key.Layer), r.Part)
				copy(r.Data, groups[i].Data[from:from+size])
			}
		}
		return nil
	})
}

func (c *CSD) read(asked, moved int64, corrupt bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Reads++
	c.stats.ReadBytes += asked
	c.stats.DeviceReadBytes += moved
	if corrupt {
		c.stats.Corrupt++
	}
}

// Gather fills dst with single tokens of a layer (csdshim.Client.Gather): only they cross the link.
func (c *CSD) Gather(ctx context.Context, seq uint64, layer int, positions []int32, dst []byte) (csdshim.Timing, error) {
	client, err := c.sequence(ctx, seq)
	if err != nil {
		return csdshim.Timing{}, err
	}
	t, err := client.Gather(ctx, seq, layer, positions, dst)
	c.read(int64(len(positions)*c.wire.TokenBytes()), int64(t.LinkBytes), errors.Is(err, csdshim.ErrCorrupt))
	if err != nil {
		return t, c.suspect(client, err)
	}
	return t, nil
}

// SetScales tells the drive what a layer's keys are divided by to become integer codes (csdshim.Client.SetScales).
func (c *CSD) SetScales(ctx context.Context, seq uint64, layer int, scales []float32) error {
	return c.again(ctx, func() error {
		client, err := c.sequence(ctx, seq)
		if err != nil {
			return err
		}
		if _, err := client.SetScales(ctx, seq, layer, scales); err != nil {
			return c.suspect(client, err)
		}
		return nil
	})
}

// Place marks tokens as hot, which the host scores, or as cold, which the drive scores.
func (c *CSD) Place(ctx context.Context, seq uint64, positions []int32, hot bool) error {
	return c.again(ctx, func() error {
		client, err := c.sequence(ctx, seq)
		if err != nil {
			return err
		}
		if hot {
			err = client.Promote(ctx, seq, positions)
		} else {
			err = client.Demote(ctx, seq, positions)
		}
		if err != nil {
			return c.suspect(client, err)
		}
		return nil
	})
}

// forget drops a sequence on the drive, over a new connection where the last one has ended: a drive that came back may hold it still.
func (c *CSD) forget(seq uint64) error {
	ctx := context.Background()
	return c.again(ctx, func() error {
		c.mu.Lock()
		closed := c.closed
		delete(c.opened, seq)
		c.mu.Unlock()
		if closed {
			return fmt.Errorf("offload: csd: %w", ErrClosed)
		}
		client, err := c.connected(ctx)
		if err != nil {
			return err
		}
		if err := client.Drop(ctx, seq, 0); err != nil {
			return c.suspect(client, err)
		}
		return nil
	})
}

// Drop forgets a sequence.
func (c *CSD) Drop(seq uint64) error {
	if err := c.forget(seq); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.stored {
		if k.Seq == seq {
			delete(c.stored, k)
		}
	}
	c.stats.UsedBytes = int64(len(c.stored)) * int64(c.wire.RecordBytes())
	return nil
}

// Stats are this store's own counts; the drive's, which other clients share, are its own (csdshim.Client.Stats).
func (c *CSD) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.HostBytes = int64(len(c.stored)) * keyBytes
	return s
}

// keyBytes is what the store counts for a record that it knows of.
const keyBytes = 24

// Trim does nothing: no memory is kept for later transfers.
func (c *CSD) Trim() {}

// ResetPeak implements Store.
func (c *CSD) ResetPeak() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.PeakBytes = c.stats.UsedBytes
}

// IndexBytes is a key for each group.
func (c *CSD) IndexBytes(groups int) int64 { return int64(len(c.shape.Layers)*groups) * keyBytes }

// Close drops what this owner stored and ends the connection.
func (c *CSD) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	client := c.client
	c.mu.Unlock()
	if closed {
		return nil
	}
	if err := client.Close(); err != nil && !errors.Is(err, csdshim.ErrLost) {
		return fmt.Errorf("offload: %w", err)
	}
	return nil
}
