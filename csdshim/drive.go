package csdshim

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/wire"
	"terrace/internal/clock"
	"terrace/internal/kernels"
	"terrace/internal/vfs"
)

// KeyPlace says where the key codes lie that a drive scores.
type KeyPlace int

const (
	// KeysDDR: in the drive's DRAM as far as they fit; the rest is made from the keys on flash at every scoring.
	KeysDDR KeyPlace = iota
	// KeysNAND: nowhere; every scoring reads the keys from flash and casts them on the fly.
	KeysNAND
)

// String is the value of the command line's --keys.
func (k KeyPlace) String() string { return [...]string{"ddr", "nand"}[k] }

// Options of a drive.
type Options struct {
	Profile       Profile
	CapacityBytes int64
	Keys          KeyPlace
	// Clock is what traffic is shaped by: on clock.Real() a reply waits until its modelled time; nil or a modelled clock
	// accounts the time and waits for nothing.
	Clock  clock.Clock
	NoSync bool   // see flash.Options
	Faults Faults // for tests
	// Attention is the arithmetic of the engine that attends; nil = the drive does not attend.
	Attention Attention
	// FS is where the drive's files lie; nil means the operating system's.
	FS vfs.FS
}

// Drive is a computational storage drive: flash, a small DRAM, a scoring engine, and the model of its times. It may be used
// in process, or through Serve and Dial.
type Drive struct {
	opts   Options
	store  *flash.Store
	model  *model
	clock  clock.Clock
	faults *injector
	codes  codeCache
	start  time.Time

	tenancy

	engine sync.Mutex // one core scores, one request at a time
	score  scoring

	counts struct {
		groupsWritten, groupsRead, tokensGathered, tokensScored, scoreBlocks, linkIn, linkOut, engineNs, ioNs atomic.Uint64
	}
}

// tenancy is which sequences there are, and whose they are.
type tenancy struct {
	mu      sync.Mutex
	seqs    map[uint32]*sequence
	attends map[uint32]*attended
	owners  map[[16]byte]*owner
	closed  bool
}

// sequence is what the drive knows of a sequence beside its stored groups. Which tokens are hot and the cached codes live
// in the drive's memory: after a restart every token is cold, and codes are made from the keys on flash again.
type sequence struct {
	id     uint32
	layout layout
	owner  [16]byte
	leased bool

	mu     sync.Mutex
	layers []layerCodes
	hot    flash.Sparse[uint16] // a bit a token, a word a group
	room   int                  // groups of a layer that the drive can hold at all: their numbers are below it
	gone   bool
}

// layerCodes are the cached codes of a layer's groups, nil where they must be made from the keys on flash, and the scales
// they are made with, nil until they are told or read.
type layerCodes struct {
	groups flash.Sparse[[]byte]
	scales []float32
}

// owner is a client's identity over its connections.
type owner struct {
	id    [16]byte
	conns int
	lease time.Duration
	timer *time.Timer
}

// OpenDrive opens the folder of a drive, or makes it. Leased sequences of owners that don't come back go when their lease
// is over.
func OpenDrive(dir string, o Options) (*Drive, error) {
	if err := o.Profile.Validate(); err != nil {
		return nil, fmt.Errorf("csdshim: profile %q: %w: %w", o.Profile.Name, err, ErrProfile)
	}
	d := &Drive{opts: o, model: newModel(o.Profile), clock: o.Clock, faults: newInjector(o.Faults), start: time.Now(), tenancy: tenancy{seqs: map[uint32]*sequence{}, attends: map[uint32]*attended{}, owners: map[[16]byte]*owner{}}}
	if d.clock == nil {
		d.clock = clock.NewJumping()
	}
	d.codes.ddr, d.codes.bytes, d.codes.ioNs = o.Keys == KeysDDR, o.Profile.DRAM.Bytes, &d.counts.ioNs
	store, err := flash.Open(dir, flash.Options{Geometry: o.Profile.Geometry(o.CapacityBytes), NoSync: o.NoSync, FS: o.FS, GroupBufferBytes: d.codes.groupBufferBytes})
	if err != nil {
		return nil, err
	}
	d.store, d.codes.store = store, store
	for _, s := range store.Sequences() {
		if err := d.recover(s); err != nil {
			store.Close()
			return nil, fmt.Errorf("csdshim: %s: sequence %d: %w: %w", dir, s.ID, err, ErrCorrupt)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.owners {
		d.expireLater(w) // a short lease may be over before the last is looked at
	}
	return d, nil
}

// recover makes a sequence known that was stored by a drive before this one.
func (d *Drive) recover(s flash.Sequence) error {
	if wire.IsAttendShape(s.Meta) {
		shape, err := wire.ParseAttendShape(s.Meta)
		if err != nil {
			return err
		}
		return d.adoptAttended(s, shape)
	}
	shape, err := wire.ParseShape(s.Meta)
	if err == nil {
		d.adopt(s, shape)
	}
	return err
}

// adopt makes a stored sequence known; mu is held, or nobody else is there yet.
func (d *Drive) adopt(s flash.Sequence, shape wire.Shape) *sequence {
	w := d.ownerOf(s.Owner)
	w.lease = max(w.lease, time.Duration(s.LeaseMs)*time.Millisecond)
	q := &sequence{id: s.ID, owner: s.Owner, leased: s.LeaseMs > 0, layout: layoutOf(shape, d.opts.Keys == KeysNAND, d.store.PageBytes()), room: min(d.store.Room(shape.RecordBytes()), maxPosition/wire.GroupTokens+1)}
	d.seqs[s.ID] = q
	return q
}

func (d *Drive) ownerOf(id [16]byte) *owner {
	w := d.owners[id]
	if w == nil {
		w = &owner{id: id}
		d.owners[id] = w
	}
	return w
}

// Identity is what the drive says about itself.
func (d *Drive) Identity() Identity {
	p, u := d.opts.Profile, d.store.Usage()
	return Identity{Profile: p.Name, Keys: d.opts.Keys.String(), Clock: map[bool]string{true: "virtual", false: "real"}[d.clock.Modelled()], Kernels: kernels.Path(),
		CapacityBytes: uint64(u.CapacityBytes), UsedBytes: uint64(u.UsedBytes), DRAMBytes: uint64(p.DRAM.Bytes),
		PageBytes: uint32(p.NAND.PageBytes), Channels: uint32(p.NAND.Channels), Dies: uint32(p.NAND.Dies), Planes: uint32(p.NAND.Planes), BlockPages: uint32(p.NAND.BlockPages),
		LinkBytesPerS: p.Link.ToHostBytesPerS, NANDBytesPerS: p.NANDBytesPerS(), ScanBytesPerS: p.ScanBytesPerS(), CanScore: !p.Engine.None, CanAttend: !p.Engine.None && d.opts.Attention != nil}
}

// Session is one client's view of the drive: its owner's sequences. Calls may run side by side.
type Session struct {
	d     *Drive
	owner *owner
}

// Connect begins a session. Sequences that it makes with a lease above 0 go when the owner has had no session for that
// long.
func (d *Drive) Connect(ownerID [16]byte, lease time.Duration) *Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.ownerOf(ownerID)
	w.conns++
	w.lease = lease
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	return &Session{d: d, owner: w}
}

// Disconnect ends the session; the leases of the owner's sequences begin to run out.
func (s *Session) Disconnect() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.owner.conns--; !s.d.closed {
		s.d.expireLater(s.owner)
	}
}

// dropLeased drops what an owner leased, at its own wish.
func (d *Drive) dropLeased(w *owner) error {
	d.mu.Lock()
	gone := d.leased(w)
	d.mu.Unlock()
	for _, id := range gone {
		if err := d.cut(id, 0); err != nil {
			return err
		}
	}
	return nil
}

// leased lists an owner's leased sequences; mu is held.
func (d *Drive) leased(w *owner) (ids []uint32) {
	for id, q := range d.seqs {
		if q.leased && q.owner == w.id {
			ids = append(ids, id)
		}
	}
	for id, q := range d.attends {
		if q.leased && q.owner == w.id {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// expireLater starts the lease of an owner without a session; mu is held.
func (d *Drive) expireLater(w *owner) {
	if w.conns == 0 && w.lease > 0 && w.timer == nil {
		w.timer = time.AfterFunc(w.lease, func() { d.expire(w) })
	}
}

// expire drops what an owner leased, unless it is back.
func (d *Drive) expire(w *owner) {
	d.mu.Lock()
	var gone []uint32
	if w.conns == 0 && !d.closed {
		gone = d.leased(w)
		delete(d.owners, w.id)
	}
	d.mu.Unlock()
	for _, id := range gone {
		_ = d.cut(id, 0) // what cannot be dropped now is found again at the next start
	}
}

// OpenSequence makes a sequence, or finds the owner's sequence of that number, which must have the same shape.
func (s *Session) OpenSequence(number uint64, shape Shape) error {
	if err := shape.Validate(); err != nil {
		return fmt.Errorf("%w: %w", err, ErrRequest)
	}
	if shape.Width() > maxWidth {
		return fmt.Errorf("csdshim: keys of %d numbers a token: the integer sums of more than %d do not fit 32 bits: %w", shape.Width(), maxWidth, ErrUnsupported)
	}
	meta := shape.Append(nil)
	d := s.d
	d.mu.Lock()
	lease := s.owner.lease // another session of the owner may be opening a sequence too
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
	if d.seqs[stored.ID] == nil {
		d.adopt(stored, shape)
	}
	return nil
}

// find is the owner's sequence of that number.
func (s *Session) find(number uint64) (*sequence, error) {
	stored, ok := s.d.store.Lookup(s.owner.id, number)
	if ok {
		s.d.mu.Lock()
		q := s.d.seqs[stored]
		s.d.mu.Unlock()
		if q != nil {
			return q, nil
		}
	}
	return nil, fmt.Errorf("csdshim: sequence %d is not open: %w", number, ErrNotFound)
}

// Drop forgets a sequence's groups from one on; from 0 on, the sequence. One that is not there is no error.
func (s *Session) Drop(number uint64, from int) error {
	id, ok := s.d.store.Lookup(s.owner.id, number)
	if !ok {
		return nil
	}
	return s.d.cut(id, from)
}

func (d *Drive) cut(id uint32, from int) error {
	err := d.store.Cut(id, from)
	d.model.collect(d.clock.Now(), d.store.Housekeeping())
	if err != nil {
		return err
	}
	d.mu.Lock()
	q := d.seqs[id]
	if q != nil && from == 0 {
		delete(d.seqs, id)
	}
	if from == 0 {
		delete(d.attends, id)
	}
	d.mu.Unlock()
	if q != nil {
		d.codes.release(q.cut(from))
	}
	return nil
}

// cut forgets cached codes and hot tokens from a group on and returns the freed bytes.
func (q *sequence) cut(from int) (freed int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone = q.gone || from == 0
	for i := range q.layers {
		l := &q.layers[i]
		for _, codes := range l.groups.All(from) {
			freed += int64(len(codes))
		}
		l.groups.Cut(from)
	}
	q.hot.Cut(from)
	return freed
}

// Place marks tokens as hot (the host has them and scores them itself) or cold (the drive scores them). All are cold at
// first. Positions may lie past what is stored, but not past what the drive can hold.
func (s *Session) Place(number uint64, positions []int32, hot bool) error {
	q, err := s.find(number)
	if err != nil {
		return err
	}
	for _, p := range positions {
		if p < 0 || int(p)/wire.GroupTokens >= q.room {
			return fmt.Errorf("csdshim: position %d, want 0 to %d, the last that the drive can hold: %w", p, q.room*wire.GroupTokens-1, ErrRequest)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range positions {
		g, bit := int(p)/wire.GroupTokens, uint16(1)<<(p%wire.GroupTokens)
		if words := q.hot.At(g); hot {
			q.hot.Set(g, words|bit)
		} else if words&bit != 0 {
			q.hot.Set(g, words&^bit)
		}
	}
	return nil
}

// maxWidth is the most numbers of a token's keys: 127·127·maxWidth fits an int32.
const maxWidth = 1 << 16

// maxPosition is the highest position of a token.
const maxPosition = 1<<28 - 1

// Stats are the drive's totals.
func (d *Drive) Stats() Stats {
	u, c := d.store.Usage(), &d.counts
	nand, engine, link := d.model.busy()
	return Stats{Life: d.store.Life(), CapacityBytes: uint64(u.CapacityBytes), UsedBytes: uint64(u.UsedBytes), PeakBytes: uint64(u.PeakBytes),
		DRAMBytes: uint64(d.opts.Profile.DRAM.Bytes), DRAMUsedBytes: uint64(d.codes.used.Load()), Sequences: uint64(u.Sequences), Groups: uint64(u.Groups - d.scaleRecords()),
		GroupsWritten: c.groupsWritten.Load(), GroupsRead: c.groupsRead.Load(), TokensGathered: c.tokensGathered.Load(), TokensScored: c.tokensScored.Load(), ScoreBlocks: c.scoreBlocks.Load(),
		LinkInBytes: c.linkIn.Load(), LinkOutBytes: c.linkOut.Load(),
		PagesRead: u.PagesRead, PagesProgrammed: u.PagesProgrammed, PagesMoved: u.PagesMoved, BlocksErased: u.BlocksErased,
		ModelNANDNs: uint64(nand), ModelEngineNs: uint64(engine), ModelLinkNs: uint64(link), ModelClockNs: uint64(d.clock.Now()),
		MeasuredEngineNs: c.engineNs.Load(), MeasuredIONs: c.ioNs.Load(), UptimeNs: uint64(time.Since(d.start))}
}

// scaleRecords is how many of the stored groups are layers' scales.
func (d *Drive) scaleRecords() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.seqs {
		for layer := range q.layout.shape.Layers {
			if d.store.Version(q.scaleKey(layer)) != 0 {
				n++
			}
		}
	}
	return n
}

// Close ends the drive. Sessions must have ended.
func (d *Drive) Close() error {
	d.mu.Lock()
	d.closed = true
	for _, w := range d.owners {
		if w.timer != nil {
			w.timer.Stop()
		}
	}
	d.mu.Unlock()
	return d.store.Close()
}
