package offload

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"terrace/internal/clock"
)

// Cache is a Store that may lie above another in a Chain: it can forget records of a sequence that lives on. Its room is counted in
// units: the records of a layer whose groups begin at a multiple of UnitGroups, and are that many at most.
type Cache interface {
	Store
	// Units is how many units have room at most.
	Units() int
	// UnitGroups is how many groups of a layer a unit has.
	UnitGroups(layer int) int
	// Forget frees the unit of a record; one that is not there is no error. None of its records may be under way.
	Forget(k Key) error
}

// Chain is a Store of two levels, or of more where one of them is a Chain: the level below holds all records, the one above copies of
// some, so it may lose them. What is written goes to both while there is room above. A unit that is read more than twice as often as the
// one least read above takes its place, with the records that are read from then on; reading everything in turn therefore moves nothing.
// A level above that fails is passed by: what it held is read from below.
type Chain struct {
	above Cache
	below Store
	up    *Queue // of above
	down  *Queue // of below

	mu      sync.Mutex
	units   map[Key]*chainUnit // by the first record's key, of living sequences
	held    []*chainUnit       // that have room above
	next    int                // where the search for the least read begins
	touches int                // since counts were halved
	index   int64              // bytes of units
	use     ChainUse
}

// ChainUse are a chain's accounts.
type ChainUse struct {
	Above, Below int64 // records read from either level
	Raised       int64 // records that were copied up after a read
	Lowered      int64 // units that gave way
	Failed       int64 // transfers of the level above that failed
}

// chainUnit is a unit that was written or read.
type chainUnit struct {
	key   Key
	reads uint32   // of its records, halved now and then
	users int      // transfers above
	place int      // in Chain.held; -1: it has no room
	there []uint64 // bits of the groups that lie above
}

// chainUnitBytes is about what a unit takes in memory, but for its bits.
const chainUnitBytes = 160

func (u *chainUnit) bytes() int64 { return chainUnitBytes + int64(8*len(u.there)) }

// NewChain puts a cache above a store. Both are the chain's from then on: Close closes them. Where the store below scores keys, so does
// the chain: its result is then a ManyScorer.
func NewChain(above Cache, below Store, c clock.Clock) (Store, error) {
	if a, b := fmt.Sprint(above.Shape()), fmt.Sprint(below.Shape()); a != b {
		return nil, fmt.Errorf("offload: chain of %s and %s: records of two shapes: %w", above.Name(), below.Name(), ErrShape)
	}
	o := QueueOptions{Clock: c}
	chain := &Chain{above: above, below: below, up: NewQueue(above, o), down: NewQueue(below, o), units: map[Key]*chainUnit{}}
	if s, ok := below.(ManyScorer); ok {
		return &scoringChain{chain, s}, nil
	}
	return chain, nil
}

// scoringChain is a Chain whose lowest level scores keys: it holds all of them.
type scoringChain struct {
	*Chain
	keyScorer
}

// Levels are the stores that s consists of, fastest first: itself, unless it is a Chain.
func Levels(s Store) []Store {
	if c, ok := s.(interface{ levels() []Store }); ok {
		return c.levels()
	}
	return []Store{s}
}

func (c *Chain) levels() []Store { return append(Levels(c.above), Levels(c.below)...) }

// Name names both levels.
func (c *Chain) Name() string { return c.above.Name() + "+" + c.below.Name() }

// Shape is that of both levels.
func (c *Chain) Shape() Shape { return c.below.Shape() }

// first is the key of the first record of a record's unit.
func (c *Chain) first(k Key) Key {
	k.Group -= k.Group % int32(c.above.UnitGroups(int(k.Layer)))
	return k
}

// unit is a record's, made where there is none; c.mu is held.
func (c *Chain) unit(k Key) *chainUnit {
	k = c.first(k)
	u := c.units[k]
	if u == nil {
		u = &chainUnit{key: k, place: -1, there: make([]uint64, (c.above.UnitGroups(int(k.Layer))+63)/64)}
		c.units[k] = u
		c.index += u.bytes()
	}
	return u
}

func (u *chainUnit) bit(k Key) (word *uint64, mask uint64) {
	i := k.Group - u.key.Group
	return &u.there[i/64], 1 << (i % 64)
}

// has reports whether a record lies above.
func (u *chainUnit) has(k Key) bool {
	word, mask := u.bit(k)
	return *word&mask != 0
}

// set notes whether a record lies above.
func (u *chainUnit) set(k Key, there bool) {
	word, mask := u.bit(k)
	if *word &^= mask; there {
		*word |= mask
	}
}

// touch counts a read of a unit. Counts are halved after ten reads of each unit above, so that they follow the text; c.mu is held.
func (c *Chain) touch(u *chainUnit) {
	u.reads++
	if c.touches++; c.touches >= 10*max(len(c.held), 16) {
		c.touches = 0
		for _, u := range c.units {
			u.reads /= 2
		}
	}
}

// searched is how many units are looked at for one that gives way.
const searched = 32

// admit gives a unit room above: free room, or, where others may give way, that of one that was read less; c.mu is held. It is in use
// until release.
func (c *Chain) admit(u *chainUnit, others bool) bool {
	if u.place < 0 && len(c.held) >= c.above.Units() {
		var least *chainUnit
		for range min(searched, len(c.held)) {
			c.next = (c.next + 1) % len(c.held)
			if x := c.held[c.next]; x.users == 0 && (least == nil || x.reads < least.reads) {
				least = x
			}
		}
		if !others || least == nil || u.reads <= 2*least.reads+uint32(c.above.UnitGroups(int(u.key.Layer))) || c.leave(least) != nil {
			return false
		}
		c.use.Lowered++
	}
	if u.place < 0 {
		u.place = len(c.held)
		c.held = append(c.held, u)
	}
	u.users++
	return true
}

// leave takes a unit's room above; c.mu is held.
func (c *Chain) leave(u *chainUnit) error {
	if err := c.above.Forget(u.key); err != nil {
		c.use.Failed++
		return err
	}
	c.withdraw(u)
	clear(u.there)
	return nil
}

// withdraw takes a unit from the list of those that have room; c.mu is held.
func (c *Chain) withdraw(u *chainUnit) {
	last := c.held[len(c.held)-1]
	c.held[u.place], last.place = last, u.place
	c.held = c.held[:len(c.held)-1]
	u.place = -1
}

// release ends a use of records above; those that failed do not lie there any more.
func (c *Chain) release(recs []Record, err error, wrote bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range recs {
		if u := c.units[c.first(recs[i].Key)]; u != nil { // nil: the sequence was dropped
			u.users--
			if err != nil || wrote {
				u.set(recs[i].Key, err == nil)
			}
		}
	}
}

// finish waits for a transfer; nothing of it is under way when it returns.
func finish(ctx context.Context, t *Ticket) error {
	err := t.Wait(ctx)
	<-t.Done()
	return err
}

// finishAbove is finish of a transfer above, whose failures are counted.
func (c *Chain) finishAbove(ctx context.Context, t *Ticket) error {
	err := finish(ctx, t)
	if passing(ctx, err) != nil {
		c.mu.Lock()
		c.use.Failed++
		c.mu.Unlock()
	}
	return err
}

// Write implements Store. It ends well where the level below has the records.
func (c *Chain) Write(ctx context.Context, recs []Record) error {
	if err := c.Shape().check(recs, true); err != nil {
		return err
	}
	var up []Record
	c.mu.Lock()
	for i := range recs {
		if c.admit(c.unit(recs[i].Key), false) {
			up = append(up, recs[i])
		}
	}
	c.mu.Unlock()
	if len(up) == 0 {
		return c.below.Write(ctx, recs)
	}
	t := c.up.Write(Demand, up)
	err := c.below.Write(ctx, recs)
	upErr := c.finishAbove(ctx, t)
	c.release(up, errors.Join(upErr, err), true) // where one failed the two may differ
	return err
}

// Read implements Store.
func (c *Chain) Read(ctx context.Context, recs []Record) error {
	if err := c.Shape().check(recs, false); err != nil {
		return err
	}
	var up, down []Record
	c.mu.Lock()
	for i := range recs {
		u := c.unit(recs[i].Key)
		c.touch(u)
		if u.has(recs[i].Key) {
			u.users++
			up = append(up, recs[i])
		} else {
			down = append(down, recs[i])
		}
	}
	c.use.Above += int64(len(up))
	c.use.Below += int64(len(down))
	c.mu.Unlock()
	if len(up) == 0 {
		return c.readBelow(ctx, down)
	}
	t := c.up.Read(Demand, up)
	var err error
	if len(down) > 0 {
		err = c.readBelow(ctx, down)
	}
	upErr := c.finishAbove(ctx, t)
	c.release(up, passing(ctx, upErr), false)
	if upErr != nil && err == nil {
		err = c.below.Read(ctx, up)
	}
	return err
}

// passing is an error of the level above, nil where it is the caller's, who waits no longer.
func passing(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrCancelled) {
		return nil
	}
	return err
}

// readBelow reads what does not lie above, and copies up what is read often.
func (c *Chain) readBelow(ctx context.Context, recs []Record) error {
	if err := c.below.Read(ctx, recs); err != nil {
		return err
	}
	c.raise(ctx, recs)
	return nil
}

// raiseMost is how many records that were read in part are read whole for the level above at a time.
const raiseMost = 8

// raise copies those of the records, which were read from below, that are read often. Of a part, or of none of it, the whole record is read.
func (c *Chain) raise(ctx context.Context, recs []Record) {
	var whole, parts []Record
	c.mu.Lock()
	for i := range recs {
		r := &recs[i]
		if some := r.Part != (Part{}) || r.Data == nil; (!some || len(parts) < raiseMost) && c.admit(c.unit(r.Key), true) {
			if some {
				parts = append(parts, Record{Key: r.Key, Data: make([]byte, c.Shape().RecordBytes(int(r.Key.Layer)))})
			} else {
				whole = append(whole, *r)
			}
		}
	}
	c.use.Raised += int64(len(whole) + len(parts))
	c.mu.Unlock()
	if len(parts) > 0 {
		if err := c.below.Read(ctx, parts); err != nil {
			c.release(parts, err, true)
		} else {
			whole = append(whole, parts...)
		}
	}
	if len(whole) > 0 {
		c.release(whole, c.finishAbove(ctx, c.up.Write(Demand, whole)), true)
	}
}

// Drop forgets a sequence on both levels.
func (c *Chain) Drop(seq uint64) error {
	err := errors.Join(c.above.Drop(seq), c.below.Drop(seq)) // before others are given its room
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, u := range c.units {
		if k.Seq != seq {
			continue
		}
		if u.place >= 0 {
			c.withdraw(u)
		}
		delete(c.units, k)
		c.index -= u.bytes()
	}
	return err
}

// Use are the accounts since the chain was made.
func (c *Chain) Use() ChainUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.use
}

// Stats are those of the level below, which holds all records; reads and writes, and memory, are those of both.
func (c *Chain) Stats() Stats {
	st, a := c.below.Stats(), c.above.Stats()
	st.HostBytes += a.HostBytes
	st.Reads += a.Reads
	st.Writes += a.Writes
	st.ReadBytes += a.ReadBytes
	st.WrittenBytes += a.WrittenBytes
	st.DeviceReadBytes += a.DeviceReadBytes
	st.DeviceWriteBytes += a.DeviceWriteBytes
	st.Corrupt += a.Corrupt
	st.Retries += a.Retries
	st.Paced = st.Paced || a.Paced
	if st.Notice != "" && a.Notice != "" {
		a.Notice += "; "
	}
	st.Notice = a.Notice + st.Notice
	c.mu.Lock()
	defer c.mu.Unlock()
	st.HostBytes += c.index
	return st
}

// IndexBytes implements Store.
func (c *Chain) IndexBytes(groups int) int64 {
	n := c.above.IndexBytes(groups) + c.below.IndexBytes(groups)
	for layer := range c.Shape().Layers {
		if per := c.above.UnitGroups(layer); per > 0 {
			n += int64((groups+per-1)/per) * int64(chainUnitBytes+8*((per+63)/64))
		}
	}
	return n
}

// ResetPeak implements Store.
func (c *Chain) ResetPeak() { c.above.ResetPeak(); c.below.ResetPeak() }

// Trim implements Store.
func (c *Chain) Trim() { c.above.Trim(); c.below.Trim() }

// Close closes both levels.
func (c *Chain) Close() error {
	return errors.Join(c.up.Close(), c.down.Close(), c.above.Close(), c.below.Close())
}
