package offload

import (
	"context"
	"fmt"
	"sync"
	"time"

	"terrace/internal/clock"
	"terrace/internal/trace"
)

// Priority orders transfers that wait: a lower one starts only when no higher one waits.
type Priority uint8

// The priorities. A transfer becomes Demand when somebody waits for it.
const (
	Demand    Priority = iota // compute waits for it
	Prefetch                  // needed soon: the next layer's records
	WriteBack                 // nobody waits: finished KV on its way down
	priorities
)

// QueueOptions are a queue's settings; zero values mean the defaults.
type QueueOptions struct {
	Depth      int             // most transfers under way at once; default 32
	DepthBytes int64           // most bytes under way at once, so that an urgent transfer soon gets its turn; default 2 MiB
	MaxWaiting int             // most records that may wait; default 1<<18, beyond: ErrBusy
	Trace      *trace.Recorder // gets busy periods of both directions, and waits; nil: nothing
	Clock      clock.Clock     // of QueueStats and Trace, and what a blocking store's transfers run on; default clock.Real
}

func (o *QueueOptions) setDefaults() {
	if o.Depth <= 0 {
		o.Depth = 32
	}
	if o.DepthBytes <= 0 {
		o.DepthBytes = 2 << 20
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 1 << 18
	}
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
}

// Queue runs reads and writes of a store in the background and retries those that fail (see the package documentation). It may
// be used by many goroutines at once. Transfers of the same record must not overlap.
type Queue struct {
	store  Store
	run    runner
	opt    QueueOptions
	cancel context.CancelFunc // of blocking transfers

	mu       sync.Mutex
	waiting  [priorities][]*transfer // in the order of arrival
	records  int                     // waiting
	inFlight int                     // transfers under way
	inBytes  int64
	closed   bool
	idle     *sync.Cond // inFlight fell
	stats    QueueStats
	busy     [2]busyPeriod // reads, writes
}

type busyPeriod struct {
	inFlight int
	since    time.Duration
	bytes    int64
}

// NewQueue starts a queue; Close ends it. The store stays the caller's.
func NewQueue(s Store, o QueueOptions) *Queue {
	o.setDefaults()
	q := &Queue{store: s, opt: o}
	ctx, cancel := context.WithCancel(context.Background())
	q.cancel = cancel
	if r, ok := s.(runner); ok {
		q.run = r
	} else {
		q.run = blocking{s, ctx, o.Clock, min(batchBytes, o.DepthBytes/2)}
	}
	q.idle = sync.NewCond(&q.mu)
	return q
}

// Read starts reading records, whole ones or parts; their Data belong to the queue until the ticket is done. The ticket's
// errors are those of Ticket.Wait.
func (q *Queue) Read(p Priority, recs []Record) *Ticket { return q.start(p, recs, 0) }

// Write starts writing whole records over what is stored under their keys; their Data belong to the queue until the ticket is
// done.
func (q *Queue) Write(p Priority, recs []Record) *Ticket { return q.start(p, recs, 1) }

// call starts a read that is no record (single tokens of a drive): by priority, and counted as bytes.
func (q *Queue) call(p Priority, bytes int64, call func(ctx context.Context) error) *Ticket {
	t := &Ticket{q: q, done: make(chan struct{}), priority: min(p, priorities-1)}
	if err := q.admit(1); err != nil {
		t.finish(err)
		return t
	}
	q.enqueue(t, []*transfer{{t: t, records: 1, bytes: bytes, device: bytes, call: call}}, 1)
	return t
}

// Store is the store that the queue was made for.
func (q *Queue) Store() Store { return q.store }

// Drop forgets every record of a sequence; one that is not stored is no error. No transfer of it may be under way.
func (q *Queue) Drop(seq uint64) error { return q.store.Drop(seq) }

// tokenRunner is a runner that moves single tokens by itself.
type tokenRunner interface {
	gathers() bool
	planTokens(seq uint64, layer int, tokens []int32, dst []byte) ([]*transfer, error)
}

// Gathers reports whether Gather works: on a drive, if keys and values have float types; on an SSD whose records lie token by
// token (SSDOptions.TokenRows); on a Chain as on its lowest level.
func (q *Queue) Gathers() bool {
	if r, ok := q.run.(tokenRunner); ok {
		return r.gathers()
	}
	if c, ok := q.store.(interface{ Gathers() bool }); ok {
		return c.Gathers()
	}
	s, ok := q.store.(Scorer)
	return ok && !s.Shape().Page.K.Quantised() && !s.Shape().Page.V.Quantised()
}

// Gather starts reading single tokens of a layer of a sequence, given by rising index (group·GroupTokens + place), into dst,
// one after another in ⌈n/GroupTokens⌉ records, as if they were the only ones. tokens and dst are the queue's until the
// ticket is done. Where Gathers is false the ticket fails with ErrShape.
func (q *Queue) Gather(p Priority, seq uint64, layer int, tokens []int32, dst []byte) *Ticket {
	r, ok := q.run.(tokenRunner)
	if store, gathers := q.store.(tokenStore); !ok && gathers {
		return q.call(p, int64(len(dst)), func(ctx context.Context) error {
			_, err := store.Gather(ctx, seq, layer, tokens, dst)
			return err
		})
	}
	t := &Ticket{q: q, done: make(chan struct{}), priority: min(p, priorities-1)}
	var trs []*transfer
	err := q.admit(len(tokens))
	if err == nil && ok {
		trs, err = r.planTokens(seq, layer, tokens, dst)
	} else if err == nil {
		err = fmt.Errorf("offload: queue of %s reads no single tokens: %w", q.store.Name(), ErrShape)
	}
	if err != nil || len(trs) == 0 {
		t.finish(err)
		return t
	}
	clock.Spend(q.opt.Clock, clock.Ask, int64(len(tokens)))
	n := 0
	for _, tr := range trs {
		tr.t = t
		n += tr.records
	}
	q.enqueue(t, trs, n)
	return t
}

func (q *Queue) start(p Priority, recs []Record, dir int) *Ticket {
	t := &Ticket{q: q, done: make(chan struct{}), priority: min(p, priorities-1)}
	err := q.store.Shape().check(recs, dir == 1)
	if err == nil {
		err = q.admit(len(recs))
	}
	var trs []*transfer
	if err == nil {
		trs, err = q.run.plan(recs, dir)
	}
	if err != nil || len(trs) == 0 {
		t.finish(err)
		return t
	}
	for _, tr := range trs {
		tr.t = t
	}
	if dir == 0 {
		clock.Spend(q.opt.Clock, clock.Ask, int64(len(recs)))
	}
	q.enqueue(t, trs, len(recs))
	return t
}

// enqueue lists a ticket's transfers and starts what may start.
func (q *Queue) enqueue(t *Ticket, trs []*transfer, records int) {
	t.left = len(trs)
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		for _, tr := range trs {
			q.run.abandon(tr)
		}
		t.finish(q.closedError())
		return
	}
	q.records += records
	q.waiting[t.priority] = append(q.waiting[t.priority], trs...)
	q.pump()
}

func (q *Queue) closedError() error {
	return fmt.Errorf("offload: queue of %s: %w", q.store.Name(), ErrClosed)
}

// admit refuses n more records where the queue is closed or too many wait.
func (q *Queue) admit(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return q.closedError()
	case q.records+n > q.opt.MaxWaiting:
		return fmt.Errorf("offload: queue of %s: %d records wait, %d more, at most %d: %w", q.store.Name(), q.records, n, q.opt.MaxWaiting, ErrBusy)
	}
	return nil
}

// pump launches what waits, highest priority first, as far as the depth allows. q.mu is held; it is given back here, because
// a launch may end transfers at once.
func (q *Queue) pump() {
	var launch []*transfer
	now := q.opt.Clock.Now()
	for p := range q.waiting {
		for len(q.waiting[p]) > 0 && q.inFlight < q.opt.Depth && (q.inFlight == 0 || q.inBytes+q.waiting[p][0].device <= q.opt.DepthBytes) {
			tr := q.waiting[p][0]
			q.waiting[p][0] = nil
			q.waiting[p] = q.waiting[p][1:]
			q.records -= tr.records
			q.begin(tr, now)
			launch = append(launch, tr)
		}
		if len(q.waiting[p]) > 0 {
			break // nothing lower overtakes what does not fit yet
		}
	}
	q.mu.Unlock()
	if len(launch) > 0 {
		q.run.launch(launch)
	}
}

func (q *Queue) begin(tr *transfer, now time.Duration) {
	q.inFlight++
	q.inBytes += tr.device
	q.stats.MaxDepth = max(q.stats.MaxDepth, q.inFlight)
	if b := &q.busy[tr.dir]; b.inFlight == 0 {
		*b = busyPeriod{inFlight: 1, since: now}
	} else {
		b.inFlight++
	}
}

// ended books a transfer that the store is done with and starts the next ones.
func (q *Queue) ended(tr *transfer, err error) {
	q.mu.Lock()
	now := q.opt.Clock.Now()
	q.inFlight--
	q.inBytes -= tr.device
	b := &q.busy[tr.dir]
	b.inFlight--
	b.bytes += tr.bytes
	if b.inFlight == 0 {
		q.stats.Busy[tr.dir] += now - b.since
		q.opt.Trace.Add([2]trace.Row{trace.Read, trace.Write}[tr.dir], q.store.Name(), b.since, now, b.bytes)
	}
	q.stats.Transfers[tr.dir]++
	q.stats.Bytes[tr.dir] += tr.bytes
	tr.t.ended(err)
	q.idle.Broadcast()
	// A few at a time: one call to the kernel for several, while the device still has enough to do.
	if q.inFlight <= q.opt.Depth*3/4 {
		q.pump()
	} else {
		q.mu.Unlock()
	}
}

// take removes a ticket's waiting transfers; q.mu is held.
func (q *Queue) take(t *Ticket) (taken []*transfer) {
	rest := q.waiting[t.priority][:0]
	for _, tr := range q.waiting[t.priority] {
		if tr.t == t {
			taken = append(taken, tr)
		} else {
			rest = append(rest, tr)
		}
	}
	clear(q.waiting[t.priority][len(rest):])
	q.waiting[t.priority] = rest
	return taken
}

// Close cancels what waits and returns when nothing is under way any more.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for p := range q.waiting {
		for _, tr := range q.waiting[p] {
			q.run.abandon(tr)
			tr.t.ended(q.closedError())
		}
		q.waiting[p] = nil
	}
	q.records = 0
	q.cancel()
	for q.inFlight > 0 {
		q.idle.Wait()
	}
	return nil
}

// QueueStats are a queue's measurements since it was made. Index 0 of a pair counts reads, 1 writes.
type QueueStats struct {
	Transfers [2]int64         // that ended; one that was retried counts once
	Bytes     [2]int64         // asked for
	Busy      [2]time.Duration // at least one transfer of the direction was under way
	Stall     time.Duration    // callers stood in Wait
	Waits     int64            // calls of Wait on a ticket that was not done yet
	MaxDepth  int              // most transfers under way at once
	Retries   int64            // transfers that were started a second time
}

// Stats are the measurements so far.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}
