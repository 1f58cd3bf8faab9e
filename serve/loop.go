package serve

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"terrace/engine"
	"terrace/engine/schedule"
	"terrace/engine/shelf"
	"terrace/internal/guard"
	"terrace/kvmanager"
	"terrace/offload"
)

// echoRowsTokens is how many tokens of a prompt whose logits are all wanted are read at once: 4 bytes a token and row.
const echoRowsTokens = 32

// idleWait is how long the loop waits where nothing can be done though requests are there.
const idleWait = 20 * time.Millisecond

// placesEvery is how often the metrics see the tiers while steps are taken.
const placesEvery = 250 * time.Millisecond

// loop owns the engine: it takes requests in, decides by engine/schedule, and takes steps until nothing is left. All that
// changes who waits, runs or is swapped out is a method of it, on one goroutine.
type loop struct {
	e     *engine.Engine
	o     *Options
	m     *metrics
	crash func(step string)                                 // tests let a step panic here; nil = no
	batch func(sessions []*engine.Session, ids []int) error // engine.DecodeBatch; tests let some fail

	waiting, running, swapped []*sequence
	ids                       int64
	pace                      schedule.Pace
	ledger                    schedule.Ledger
	watch                     watch
	left                      int64          // choices that had begun and have ended
	freed                     bool           // in this step somebody has given room back
	active                    map[string]int // choices by key
	placed                    time.Time
	decided                   map[string]time.Duration // by policies, as the metrics have it

	keeper *shelf.Keeper // keeps contexts as a placement says; nil = none does

	mu    sync.Mutex
	yield context.CancelFunc // ends what is done while nobody is served; nil = nothing is
	inbox []*job
	calls []call
	jobs  int // in the inbox and below, not over
	begun int // of them begun: at least one choice has a session
	slots int // choices that run
	queue int // choices that have not begun
	wake  chan struct{}
	end   sync.Once
	quit  chan struct{}
	done  chan struct{}
}

func newLoop(o *Options, m *metrics) *loop {
	return &loop{e: o.Engine, o: o, m: m, batch: o.Engine.DecodeBatch, pace: schedule.Pace{Target: o.ITLTarget}, ledger: schedule.Ledger{}, active: map[string]int{}, decided: map[string]time.Duration{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
}

// submit hands a request over; false where the queue is full.
func (l *loop) submit(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.jobs-l.begun >= l.o.Queue && l.slots+l.queue+j.left > max(l.o.Batch, j.left) {
		return false
	}
	l.inbox = append(l.inbox, j)
	l.jobs++
	l.queue += j.left
	l.gauges()
	l.interrupt()
	l.signal()
	return true
}

func (l *loop) gauges() { l.m.setRequests(l.begun, l.jobs-l.begun) }

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// idle reports whether no request is left.
func (l *loop) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs == 0
}

// account brings the metrics up to what the engine says.
func (l *loop) account() {
	l.m.places(l.e.Places())
	if l.keeper != nil {
		l.m.placement.note(l.keeper.Figures())
	}
	l.m.decided(l.e.PolicyTime(), l.decided)
}

// run is the loop; it ends at stop.
func (l *loop) run() {
	defer func() {
		l.account()
		close(l.done)
	}()
	for {
		l.take()
		l.serveCalls()
		l.dropGone()
		busy := false
		if len(l.waiting)+len(l.running)+len(l.swapped) > 0 {
			if err := guard.Run(func() error { busy = l.step(); return nil }); err != nil {
				l.o.Log.Error("a step failed by a bug", slog.String("error", oneLine(err)))
				l.failAll(errInternal)
			}
		}
		l.watch.look(l, !busy)
		if now := time.Now(); !busy || now.Sub(l.placed) > placesEvery {
			l.placed = now
			l.account()
			l.keepBetween(busy)
		}
		if busy || l.keepContexts() {
			select {
			case <-l.quit:
				l.failAll(errDraining)
				return
			default:
				continue
			}
		}
		var again <-chan time.Time
		if len(l.waiting)+len(l.swapped) > 0 {
			again = time.After(idleWait)
		}
		select {
		case <-l.wake:
		case <-again:
		case <-l.quit:
			l.take()
			l.failAll(errDraining)
			return
		}
	}
}

// stop ends the loop; requests that are left fail.
func (l *loop) stop() {
	l.end.Do(func() {
		close(l.quit)
		l.mu.Lock()
		l.interrupt()
		l.mu.Unlock()
	})
	<-l.done
}

// take moves what was submitted to those that wait.
func (l *loop) take() {
	l.mu.Lock()
	jobs := l.inbox
	l.inbox = nil
	l.mu.Unlock()
	for _, j := range jobs {
		l.ledger.Join(j.r.key, l.active)
		l.active[j.r.key] += j.left
		for i := range j.left {
			l.ids++
			l.waiting = append(l.waiting, l.newSequence(j, i))
		}
	}
}

func (l *loop) newSequence(j *job, choice int) *sequence {
	q := &sequence{id: l.ids, job: j, choice: choice, prompt: j.r.Prompts[choice/max(1, j.r.Choices)], vocab: l.e.Model().Vocab, under: j.r.Policy}
	q.waits, q.pieces = -1, &tap{Detokenizer: l.o.Tokenizer.NewDetokenizer().Show(j.r.shown)}
	if q.under == nil {
		q.under = l.e.Policy()
	}
	if j.r.Logprobs >= 0 {
		q.top = NewRanker(l.o.Tokenizer, j.r.Logprobs)
	}
	q.finds = l.asks(q)
	return q
}

// dropGone ends what nobody waits for any more.
func (l *loop) dropGone() {
	for _, list := range [...][]*sequence{l.waiting, l.running, l.swapped} {
		for _, q := range list {
			if err := q.job.ctx.Err(); err != nil && !q.job.over {
				q.job.over = true
				q.job.reply.fail(err)
			}
		}
	}
	l.sweep()
}

// sweep takes out the sequences of requests that are over.
func (l *loop) sweep() {
	for _, list := range [...]*[]*sequence{&l.waiting, &l.running, &l.swapped} {
		kept := (*list)[:0]
		for _, q := range *list {
			if q.job.over {
				l.leave(q)
				continue
			}
			kept = append(kept, q)
		}
		clear((*list)[len(kept):])
		*list = kept
	}
}

// leave is the end of a sequence, whichever.
func (l *loop) leave(q *sequence) {
	j := q.job
	l.mu.Lock()
	if q.started {
		l.slots--
		l.left, l.freed = l.left+1, true
	} else {
		l.queue--
	}
	j.left--
	if j.left == 0 {
		j.over = true
		l.jobs--
		if j.started {
			l.begun--
		}
	}
	l.gauges()
	l.mu.Unlock()
	if l.active[j.r.key]--; l.active[j.r.key] == 0 {
		delete(l.active, j.r.key)
	}
	if q.thought != nil {
		_ = guard.Run(func() error { q.thought.p.End(); return nil })
	}
	_ = guard.Run(func() error { q.close(); return nil })
}

func (l *loop) failAll(err error) {
	for _, list := range [...][]*sequence{l.waiting, l.running, l.swapped} {
		for _, q := range list {
			q.job.over = true
			q.job.reply.fail(err)
		}
	}
	l.sweep()
}

// fail ends the request of a sequence with an error.
func (l *loop) fail(q *sequence, err error) {
	if q.job.over {
		return
	}
	q.job.over = true
	if crash := (*guard.Crash)(nil); errors.As(err, &crash) {
		l.o.Log.Error("a request failed by a bug", slog.String("error", oneLine(err)), slog.String("stack", string(crash.Stack)))
	} else if q.job.ctx.Err() == nil {
		l.o.Log.Warn("a request failed", slog.String("error", oneLine(err)))
	}
	q.job.reply.fail(clientError(err))
}

// step decides and acts; false where nothing could be done.
func (l *loop) step() bool {
	l.freed = false
	room, free := l.e.KVRoom()
	views := func(list []*sequence) []schedule.Request {
		out := make([]schedule.Request, len(list))
		for i, q := range list {
			out[i] = q.view(l.e, l.left)
		}
		return out
	}
	s := schedule.State{Waiting: views(l.ready()), Running: views(l.running), Swapped: views(l.swapped), Slots: l.o.Batch, Room: room, Free: free,
		Page: l.e.PageTokens(), Ledger: l.ledger}
	decoding := 0
	for _, r := range s.Running {
		if r.Unread == 0 {
			decoding++
		}
	}
	s.Budget = l.pace.Budget(decoding, min(l.o.Batch, len(s.Running)+len(s.Waiting)+len(s.Swapped))-decoding)
	next := schedule.Next(s)
	for _, id := range next.Refuse {
		q := lookup(l.waiting, id)
		e := badRequest("%d prompt tokens and %d to generate need more room than the %d tokens that the memory given holds", len(q.prompt), max(0, q.job.r.MaxTokens), room)
		e.Cause = kvmanager.ErrBudget
		l.fail(q, e)
	}
	for _, id := range next.Swap {
		l.swapOut(lookup(l.running, id), true)
	}
	for _, id := range next.Resume {
		l.begin(move(&l.swapped, &l.running, id))
	}
	for _, id := range next.Admit {
		l.begin(move(&l.waiting, &l.running, id))
	}
	if !l.together(next.Decode, next.Prompt) {
		l.decode(next.Decode)
		l.read(next.Prompt)
	}
	l.sweep()
	runtime.Gosched() // readers of streams go on now, not when the kernels' threads are preempted
	return len(next.Refuse)+len(next.Swap)+len(next.Resume)+len(next.Admit)+len(next.Decode)+len(next.Prompt) > 0
}

// begin gives a sequence its session.
func (l *loop) begin(q *sequence) {
	j := q.job
	if !q.started {
		q.started = true
		l.mu.Lock()
		l.slots, l.queue = l.slots+1, l.queue-1
		if !j.started {
			j.started = true
			l.begun++
		}
		l.gauges()
		l.mu.Unlock()
		if j.began.IsZero() {
			j.began = time.Now()
			queued := j.began.Sub(j.r.received)
			q.span("queue", j.r.received, j.began, "", 0)
			j.reply.note(func(_ *Usage, t *Timings) { t.Queue = queued })
			l.m.queue.Observe(queued.Seconds())
		}
	}
	if j.over {
		return
	}
	if !q.away.IsZero() {
		q.span("swapped out", q.away, time.Now(), "", 0)
		q.away = time.Time{}
	}
	if q.kept && l.resume(q) {
		return
	}
	if err := guard.Run(func() error { return q.open(l.e, l.o) }); err != nil {
		l.trouble(q, err)
	}
}

// resume brings a suspended session back, or has the sequence wait for room until another leaves; false: it is lost, and the text is
// read again.
func (l *loop) resume(q *sequence) bool {
	err := guard.Run(q.session.Resume)
	if q.kept = err != nil; err == nil {
		return true
	}
	if short(err) && len(l.running) > 1 {
		q.waits, q.away = l.left, time.Now()
		move(&l.running, &l.swapped, q.id)
		return true
	}
	l.mine(q, (*sequence).swapOut)
	return false
}

// mine does something for a sequence; a panic on the way is the end of its request alone.
func (l *loop) mine(q *sequence, f func(q *sequence)) {
	if err := guard.Run(func() error { f(q); return nil }); err != nil {
		l.fail(q, err)
	}
}

// short reports whether an error is want of room.
func short(err error) bool {
	return errors.Is(err, kvmanager.ErrBudget) || errors.Is(err, offload.ErrFull) || errors.Is(err, engine.ErrMemory)
}

// trouble is an error of a sequence: where memory is short somebody leaves it to the others, and comes back when one of them has
// left; who is alone and has no room for another token of its answer ends here (CutMemory); else the request fails.
func (l *loop) trouble(q *sequence, err error) {
	youngest, others := q, 0
	for _, r := range l.running {
		if r == q {
			continue
		}
		if r.job.over { // it leaves at the end of the step
			l.freed = true
			continue
		}
		if others++; r.id > youngest.id {
			youngest = r
		}
	}
	full := errors.Is(err, offload.ErrFull)
	if short(err) && (full || others == 0 && !l.freed) && l.forget() && q.session != nil {
		return // there is more room in the next step
	}
	switch {
	case short(err) && others == 0 && !l.freed && decodes(q):
		l.mine(q, func(q *sequence) {
			q.gen.End(string(CutMemory))
			l.publish(q, false)
		})
	case !short(err) || others == 0 && !l.freed:
		l.fail(q, err)
	case q.session == nil: // it has to begin again
		l.swapOut(q, false)
	case others > 0:
		youngest.waits = l.left
		l.swapOut(youngest, !full)
	} // else there is more room in the next step, without those who have just left
}

// forget has the youngest of those that are swapped out with their sessions give these back; false = there is none.
func (l *loop) forget() bool {
	var youngest *sequence
	for _, q := range l.swapped {
		if q.kept && (youngest == nil || q.id > youngest.id) {
			youngest = q
		}
	}
	if youngest == nil {
		return false
	}
	l.mine(youngest, (*sequence).swapOut)
	l.freed = true
	return true
}

// swapOut has a sequence leave its room to others; with keep its KV and state stay on the tier below, if there is one.
func (l *loop) swapOut(q *sequence, keep bool) {
	l.m.preemptions.Add(1)
	q.away, l.freed = time.Now(), l.freed || q.session != nil
	move(&l.running, &l.swapped, q.id)
	l.mine(q, func(q *sequence) {
		if l.crash != nil {
			l.crash("swap")
		}
		if keep && q.suspend() {
			l.m.suspended.Add(1)
			return
		}
		q.swapOut()
	})
}

func lookup(list []*sequence, id int64) *sequence {
	for _, q := range list {
		if q.id == id {
			return q
		}
	}
	return nil
}

func move(from, to *[]*sequence, id int64) *sequence {
	q := lookup(*from, id)
	*from = slices.DeleteFunc(*from, func(r *sequence) bool { return r == q })
	*to = append(*to, q)
	return q
}
