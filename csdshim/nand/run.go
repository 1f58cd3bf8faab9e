package nand

import (
	"fmt"
	"math"
	"time"
)

// run is one call's operations on one channel, event by event. Its memory serves the next run.
type run struct {
	t    Timing
	c    *channel
	busy *time.Duration
	ops  []Op
	done []time.Duration

	list    []int32 // operations of the channel in order of arrival
	arrived int     // of list
	left    int     // operations that are not done
	dies    []die
	rows    rowLists      // waiting operations, where there are several planes
	gone    []bool        // by operation: taken with an older one, still in its queue
	taken   []int32       // begun at once
	turn    int           // the die that may start first
	idle    time.Duration // when this call's last crossing is over
}

// die is one die during a call.
type die struct {
	free    time.Duration // when its cells, and without CacheRead its register, are free
	waiting [kinds]queue
	sensed  []int32 // pages in the cells, not in the register yet
	ready   time.Duration
	pages   []int32 // in the register, to cross in order
	since   time.Duration
	room    [2][]int32 // of sensed and pages, by turns
}

const never = time.Duration(math.MaxInt64)

// begin makes ready for the operations of a list, all of one channel.
func (r *run) begin(a *Array, c *channel, ops []Op, list []int32, done []time.Duration) {
	r.t, r.c, r.busy, r.ops, r.done, r.list = a.t, c, &a.busy, ops, done, list
	r.arrived, r.left, r.turn, r.idle = 0, len(list), 0, 0
	if len(r.dies) == 0 {
		r.dies = make([]die, a.t.Dies)
	}
	c.forget(ops[list[0]].At)
	for d := range r.dies {
		x := &r.dies[d]
		x.free, x.ready, x.since, x.sensed, x.pages = c.free[d], 0, 0, nil, nil
		for k := range x.waiting {
			x.waiting[k].all, x.waiting[k].head = x.waiting[k].all[:0], 0
		}
	}
}

// leave hands the channel over to later calls.
func (r *run) leave() {
	for d := range r.dies {
		r.c.free[d] = r.dies[d].free
	}
}

// all runs to the end: at every event whatever can begin begins.
func (r *run) all() {
	for now := r.ops[r.list[0]].At; ; now = r.next(now) {
		r.arrive(now)
		for r.step(now) {
		}
		if r.left == 0 {
			return
		}
	}
}

func (r *run) arrive(now time.Duration) {
	for r.arrived < len(r.list) && r.ops[r.list[r.arrived]].At <= now {
		r.add(r.list[r.arrived])
		r.arrived++
	}
}

// step begins one thing that can begin now; false where nothing can.
func (r *run) step(now time.Duration) bool {
	for d := range r.dies {
		r.latch(&r.dies[d], now)
	}
	idle := r.idle <= now && r.c.fit(now, 0) == now
	if idle {
		if d := r.oldest(now); d != nil {
			return r.cross(d, now)
		}
	}
	if !idle && !r.t.CacheRead {
		return false
	}
	for i := range r.dies {
		d := (r.turn + i) % len(r.dies)
		if r.start(&r.dies[d], now, idle) {
			r.turn = (d + 1) % len(r.dies)
			return true
		}
	}
	return false
}

// latch moves sensed pages to the register.
func (r *run) latch(d *die, now time.Duration) {
	if len(d.sensed) > 0 && d.ready <= now && len(d.pages) == 0 {
		d.pages, d.sensed, d.since = d.sensed, nil, max(d.ready, d.since)
		if r.t.CacheRead {
			d.free = now
		}
	}
}

// oldest is the die whose sensed pages wait longest to cross.
func (r *run) oldest(now time.Duration) (best *die) {
	for i := range r.dies {
		d := &r.dies[i]
		if len(d.pages) > 0 && d.since <= now && (best == nil || d.since < best.since) {
			best = d
		}
	}
	return best
}

// cross sends a register's next page over the channel, if the gap until others' pages is long enough.
func (r *run) cross(d *die, now time.Duration) bool {
	end := now + r.t.Cross
	if at := r.c.fit(now, r.t.Cross); at != now {
		r.idle = at
		return true
	}
	r.c.take(now, end)
	r.idle = end
	*r.busy += r.t.Cross
	r.finish(d.pages[0], end)
	if d.pages = d.pages[1:]; len(d.pages) > 0 {
		return true
	}
	if d.since = end; !r.t.CacheRead {
		d.free = end
	} else if len(d.sensed) > 0 {
		d.pages, d.sensed = d.sensed, nil
		d.since = max(d.ready, end)
		d.free = d.since
	}
	return true
}

func (r *run) finish(op int32, at time.Duration) {
	r.done[op] = at
	r.left--
}

// finishAll takes what waits first in a queue; it is done at a time.
func (r *run) finishAll(q *queue, at time.Duration) {
	r.taken = r.take(q, r.taken[:0])
	for _, op := range r.taken {
		r.finish(op, at)
	}
}

// start has a die take its next operation.
func (r *run) start(d *die, now time.Duration, idle bool) bool {
	if d.free > now || len(d.sensed) > 0 {
		return false
	}
	if !r.t.CacheRead && len(d.pages) > 0 {
		return false
	}
	if q := &d.waiting[Read]; q.any(r.gone) {
		d.room[0], d.room[1] = d.room[1], d.room[0] // the other one's pages may be crossing
		d.room[0] = r.take(q, d.room[0][:0])
		d.sensed = d.room[0]
		d.ready = now + r.t.Sense
		d.free = d.ready
		*r.busy += r.t.Sense
		return true
	}
	if len(d.pages) > 0 || d.since > now {
		return false
	}
	if d.waiting[Program].any(r.gone) && idle {
		return r.program(d, now)
	}
	if d.waiting[Erase].any(r.gone) && !d.waiting[Program].any(r.gone) {
		d.free = now + r.t.Erase
		*r.busy += r.t.Erase
		r.finishAll(&d.waiting[Erase], d.free)
		return true
	}
	return false
}

// program sends pages over the channel and programs them.
func (r *run) program(d *die, now time.Duration) bool {
	q := &d.waiting[Program]
	long := time.Duration(r.width(q)) * r.t.Cross
	if at := r.c.fit(now, long); at != now {
		r.idle = at
		return true
	}
	r.c.take(now, now+long)
	r.idle = now + long
	d.free = now + long + r.t.Program
	*r.busy += long + r.t.Program
	r.finishAll(q, d.free)
	return true
}

// next is the next time at which something may begin.
func (r *run) next(now time.Duration) time.Duration {
	at := never
	soon := func(t time.Duration) {
		if t > now {
			at = min(at, t)
		}
	}
	if r.arrived < len(r.list) {
		soon(r.ops[r.list[r.arrived]].At)
	}
	soon(r.idle)
	soon(r.c.fit(now, 0))
	for i := range r.dies {
		d := &r.dies[i]
		soon(d.free)
		if len(d.sensed) > 0 {
			soon(d.ready)
		}
		soon(d.since)
	}
	if at == never {
		panic(fmt.Sprintf("nand: %d operations are left and nothing happens after %v", r.left, now))
	}
	return at
}
