package contexts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"terrace/internal/guard"
	"terrace/internal/storage"
)

// partsAhead is how many parts may be read before anybody waits for them.
const partsAhead = 4 * fetchAhead

// Arrival is the records of a chain on their way in parts: the beginnings of all, which have the first layers, before what follows
// of any. So the first layers can be used while the last are read. A part that is damaged or missing, and a tier that gives whole
// records only, have the record read whole (get), so that trouble is said and remembered as by Fetch.
//
// Concurrency: one goroutine takes from it.
type Arrival struct {
	s      *Store
	rule   Rule
	tokens int
	part   int // bytes
	cancel context.CancelFunc
	begun  time.Time

	mu      sync.Mutex
	moved   *sync.Cond // anything below has changed
	keys    []Key
	rest    func(parts int) []Key // keys of a compressed context's other parts, until their number is known; nil = it is
	records []arriving
	claims
	from  map[int]bool // tiers that records came from
	guess int64        // bytes of the next record
}

// claims say what is read and what is next.
type claims struct {
	limit   int     // nothing from this record on
	heads   int     // records whose first part somebody reads or has read
	open    int     // first parts that are being read
	levels  [][]int // [part] records that have it and of which it was not claimed
	chain   bool    // record after record, no longer part after part
	done    int     // in a chain: all parts of the records before it are claimed
	taken   bool    // somebody waits: reading ahead has no bounds
	claimed int     // parts
	ended   bool
}

// arriving is a record of which some parts are there.
type arriving struct {
	r       *Record // once its header was read; raw and sections have their lengths, not their bytes
	table   []section
	raw     []byte
	part    int    // bytes of a part
	parts   []bool // read; nil = the number is not known
	claimed int    // parts that somebody reads or has read
	ready   int    // sections that are there and checked
	tier    int
}

// whole reports whether all of it is there, or it is being read whole.
func (x *arriving) whole() bool { return x.r == nil || x.ready == len(x.table) }

// Arrive begins to read the records of keys, in parts, up to the first that is on no tier. rule and tokens (those asked for) say how
// long it is waited for, from now on. Close it.
func (s *Store) Arrive(ctx context.Context, keys []Key, rule Rule, tokens int) *Arrival {
	return s.arrive(ctx, keys, nil, rule, tokens)
}

// ArriveContext is Arrive for the parts of a compressed context: the first says how many there are, rest gives the keys of the others.
func (s *Store) ArriveContext(ctx context.Context, first Key, rest func(parts int) []Key, rule Rule, tokens int) *Arrival {
	return s.arrive(ctx, []Key{first}, rest, rule, tokens)
}

func (s *Store) arrive(ctx context.Context, keys []Key, rest func(int) []Key, rule Rule, tokens int) *Arrival {
	a := &Arrival{rest: rest, s: s, keys: keys, rule: rule, tokens: tokens, begun: time.Now(), records: make([]arriving, len(keys)), claims: claims{limit: len(keys)}, from: map[int]bool{}, part: s.o.PartBytes}
	a.moved = sync.NewCond(&a.mu)
	ctx, a.cancel = context.WithCancel(ctx)
	workers := fetchWorkers
	if rest == nil {
		workers = min(workers, len(keys))
	}
	for range workers {
		go func() {
			if err := guard.Run(func() error { a.work(ctx); return nil }); err != nil {
				a.lose(0)
				s.say("", err)
			}
		}()
	}
	return a
}

// work reads part after part.
func (a *Arrival) work(ctx context.Context) {
	for {
		i, part, ok := a.claim()
		if !ok {
			return
		}
		if part == 0 {
			a.begin(ctx, i)
		} else {
			a.more(ctx, i, part)
		}
	}
}

func (a *Arrival) key(i int) Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys[i]
}

// claim takes the next part to read; ok is false where none is left.
func (a *Arrival) claim() (i, part int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.ended {
		if a.taken || a.claimed < partsAhead {
			if i, part = a.next(); i >= 0 {
				a.records[i].claimed++
				a.claimed++
				return i, part, true
			}
			if a.open == 0 {
				return 0, 0, false
			}
		}
		a.moved.Wait()
	}
	return 0, 0, false
}

// next is the next part that nobody has claimed: the lowest of all records, or of the first record. i is -1 where none is known.
func (a *Arrival) next() (i, part int) {
	if a.heads < a.limit && !a.chain {
		a.heads++
		a.open++
		return a.heads - 1, 0
	}
	for part := range a.levels {
		for len(a.levels[part]) > 0 && !a.chain {
			i := a.levels[part][0]
			a.levels[part] = a.levels[part][1:]
			if x := &a.records[i]; i < a.limit && x.claimed == part && part < len(x.parts) {
				return i, part
			}
		}
	}
	for i := a.done; i < a.limit && a.chain; i++ {
		x := &a.records[i]
		switch {
		case x.claimed == 0:
			a.open++
			return i, 0
		case x.claimed < len(x.parts):
			return i, x.claimed
		case x.parts != nil && i == a.done:
			a.done++
		}
	}
	return -1, 0
}

// begin reads a record's first part, or all of it where its tier has no parts.
func (a *Arrival) begin(ctx context.Context, i int) {
	defer func() {
		a.mu.Lock()
		a.open--
		a.moved.Broadcast()
		a.mu.Unlock()
	}()
	key := a.key(i)
	for n, m := range a.s.tiers {
		if m.resting() {
			continue
		}
		p, ok := m.tier.(parted)
		if !ok {
			break // it gives whole records
		}
		part, begun := a.partOf(m), m.slow.begin()
		raw := a.room(m, key, part)
		got, err := p.readPart(ctx, key, raw[:min(part, len(raw))], 0)
		if errors.Is(err, ErrMiss) {
			continue
		}
		if err == nil && a.header(i, n, raw, part, got) && m.slow.held(ctx, begun, int64(got)) == nil {
			a.arrived(ctx, i, 0)
			return
		}
		break
	}
	a.wholly(ctx, i)
}

// header looks at a record's first part, of got bytes in raw; false where it is not one.
func (a *Arrival) header(i, tier int, raw []byte, part, got int) bool {
	if got < pageBytes {
		return false
	}
	m, total, table, err := parseHeader(raw[:pageBytes])
	if err != nil || m.Key != a.key(i) || int64(got) != min(total, int64(part)) {
		return false
	}
	if total != int64(len(raw)) {
		raw = append(storage.Aligned(int(total))[:0], raw[:got]...)[:total]
	}
	r := &Record{Meta: m, raw: raw}
	for _, s := range table {
		r.sections = append(r.sections, raw[s.off:s.off+s.bytes:s.off+s.bytes])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	x := &a.records[i]
	x.r, x.table, x.raw, x.tier, x.part, x.parts = r, table, raw, tier, part, make([]bool, (total+int64(part)-1)/int64(part))
	for part := 1; part < len(x.parts); part++ {
		if part >= len(a.levels) {
			a.levels = append(a.levels, make([][]int, part+1-len(a.levels))...)
		}
		a.levels[part] = append(a.levels[part], i)
	}
	a.guess = total
	a.grow(i, r)
	a.moved.Broadcast()
	return true
}

// grow has the other parts of a compressed context read once the first says how many there are; mu is held.
func (a *Arrival) grow(i int, r *Record) {
	if a.rest == nil || i > 0 || a.limit == 0 {
		return
	}
	more := a.rest(r.Parts)
	a.rest = nil
	a.keys = append(a.keys, more...)
	a.records = append(a.records, make([]arriving, len(more))...)
	a.limit = len(a.keys)
}

// more reads another part of a record.
func (a *Arrival) more(ctx context.Context, i, part int) {
	a.mu.Lock()
	x := a.records[i]
	a.mu.Unlock()
	if x.whole() {
		return
	}
	m, off := a.s.tiers[x.tier], int64(part)*int64(x.part)
	dst := x.raw[off:min(off+int64(x.part), int64(len(x.raw)))]
	begun := m.slow.begin()
	n, err := m.tier.(parted).readPart(ctx, a.key(i), dst, off)
	if err == nil && n == len(dst) && m.slow.held(ctx, begun, int64(n)) == nil {
		a.arrived(ctx, i, part)
		return
	}
	a.wholly(ctx, i)
}

// arrived notes a part, and checks the sections that are there with it.
func (a *Arrival) arrived(ctx context.Context, i, part int) {
	a.mu.Lock()
	x := &a.records[i]
	if x.whole() {
		a.mu.Unlock()
		return
	}
	x.parts[part] = true
	have := int64(len(x.raw))
	if n := slices.Index(x.parts, false); n >= 0 {
		have = int64(n) * int64(x.part)
	}
	r, table, from := x.r, x.table, x.ready
	a.mu.Unlock()
	ready := from
	for ; ready < len(table) && table[ready].off+table[ready].bytes <= have; ready++ {
		if storage.Checksum(r.sections[ready]) != table[ready].sum {
			a.damaged(ctx, i, r)
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if x = &a.records[i]; x.r == r {
		x.ready = max(x.ready, ready)
		a.from[x.tier] = true
	}
	a.moved.Broadcast()
}

// damaged has a record whose parts do not fit read whole: then it is found on another tier, or what is wrong is said.
func (a *Arrival) damaged(ctx context.Context, i int, r *Record) {
	a.mu.Lock()
	mine := a.records[i].r == r
	if mine {
		a.records[i].r, a.records[i].claimed = nil, len(a.records[i].parts) // nobody else goes on with it
	}
	a.mu.Unlock()
	if mine {
		a.wholly(ctx, i)
	}
}

// wholly reads a record as Fetch does; where no tier has it the chain ends before it.
func (a *Arrival) wholly(ctx context.Context, i int) {
	r, tier, err := a.s.get(ctx, a.key(i))
	if err != nil {
		a.lose(i)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	x := &a.records[i]
	if x.r == nil || x.ready < len(x.table) {
		*x = arriving{r: r, table: make([]section, len(r.sections)), raw: r.raw, part: len(r.raw), parts: []bool{true}, claimed: max(1, x.claimed), ready: len(r.sections), tier: tier}
		a.from[tier] = true
		a.grow(i, r)
	}
	a.moved.Broadcast()
}

// lose says that nothing from record i on will come.
func (a *Arrival) lose(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = min(a.limit, i)
	a.moved.Broadcast()
}

// wait waits until is says so, the chain is shorter than n records, or a share of the time that the rule gives is over; mu is held.
func (a *Arrival) wait(ctx context.Context, n int, share float64, is func() bool) error {
	a.taken = true
	a.moved.Broadcast()
	most, ends := a.rule.deadline(a.tokens)
	if ends {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, a.begun.Add(time.Duration(float64(most)*share)))
		defer cancel()
	}
	defer context.AfterFunc(ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.moved.Broadcast()
	})()
	for !is() {
		switch {
		case a.limit < n || a.ended:
			return ErrMiss
		case ctx.Err() != nil:
			return ctx.Err()
		}
		a.moved.Wait()
	}
	return nil
}

// Begun waits for the directories of all records that there are, and returns the records: their directories (section 0) are there,
// what follows comes by Section. Where the beginnings alone take more of the time that the rule gives than is their share, whole
// is true, and the records are those of the beginning that came wholly in that time.
func (a *Arrival) Begun(ctx context.Context) (records []*Record, whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	share := 1.0
	for i := 0; i < a.limit; i++ {
		err := a.wait(ctx, i+1, share, func() bool { x := &a.records[i]; return x.r != nil && x.ready >= min(1, len(x.table)) })
		if err != nil && i < a.limit {
			a.chain = true
			return a.wholeRecords(ctx), true
		}
		if err == nil && i == 0 {
			share = 1 / float64(len(a.records[0].parts))
		}
	}
	for i := range a.records[:a.limit] {
		if a.records[i].r == nil { // found damaged meanwhile
			return records, false
		}
		records = append(records, a.records[i].r)
	}
	return records, false
}

// Section waits for a section of record i. An error says that it does not come, or not in time: a record from i on is lost.
func (a *Arrival) Section(ctx context.Context, i, section int) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.wait(ctx, i+1, 1, func() bool { x := &a.records[i]; return x.r != nil && x.ready > section })
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			a.s.late(i, len(a.keys))
		}
		return nil, fmt.Errorf("contexts: record %d of %d: %w", i+1, len(a.keys), err)
	}
	x := &a.records[i]
	if section >= len(x.r.sections) {
		return nil, fmt.Errorf("contexts: record %d has %d sections: %w", i+1, len(x.r.sections), ErrDamaged)
	}
	return x.r.sections[section], nil
}

// Whole returns the records of the beginning that come wholly in the time that is left.
func (a *Arrival) Whole(ctx context.Context) []*Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.chain = true
	return a.wholeRecords(ctx)
}

func (a *Arrival) wholeRecords(ctx context.Context) (records []*Record) {
	for i := 0; i < a.limit; i++ {
		err := a.wait(ctx, i+1, 1, func() bool { x := &a.records[i]; return x.r != nil && x.ready == len(x.table) })
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				a.s.late(i, len(a.keys))
			}
			break
		}
		records = append(records, a.records[i].r)
	}
	return records
}

// Tier is the slowest tier that records came from so far; empty = none did.
func (a *Arrival) Tier() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.s.slowest(a.from)
}

// Records is how many records there are, as far as is known.
func (a *Arrival) Records() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limit
}

// Used notes that the first n records, all of which have come, were used (Fetch.Used).
func (a *Arrival) Used(n int) {
	a.mu.Lock()
	below := 0
	for i := range a.from {
		below = max(below, i)
	}
	records := make([]*Record, 0, n)
	for _, x := range a.records[:n] {
		records = append(records, x.r)
	}
	a.mu.Unlock()
	a.s.used(a.keys[:n], records, below)
}

// Close ends it; what was not taken is forgotten. It does not wait for a tier that hangs.
func (a *Arrival) Close() {
	a.mu.Lock()
	a.ended = true
	a.moved.Broadcast()
	a.mu.Unlock()
	a.cancel()
}
