package nand

import (
	"fmt"
	"slices"
	"time"
)

// Timing is the flash: its shape and what operations take; a time of 0 is not limited.
type Timing struct {
	Channels, Dies, Planes int // dies a channel, planes a die
	Sense, Program, Erase  time.Duration
	Cross                  time.Duration // of a page over its channel
	CacheRead              bool          // a die senses on while its former pages cross
}

// Place is where a page lies. Pages of one row in the planes of a die are sensed or programmed together.
type Place struct{ Channel, Die, Plane, Row int }

// Kind is what is done to a page.
type Kind uint8

// The kinds, in the order in which a free die takes them.
const (
	Read Kind = iota
	Program
	Erase
	kinds
)

// Op is one page's operation.
type Op struct {
	At    time.Duration // when it arrives
	Kind  Kind
	Place Place
}

// Array is the flash over time.
type Array struct {
	t        Timing
	channels []channel
	busy     time.Duration // of all dies
	run      run
	by       [][]int32 // operations by channel
	done     []time.Duration
}

// channel is what earlier calls have left: when its dies are free, and when pages cross it.
type channel struct {
	free    []time.Duration // by die
	crossed []span          // rising, apart
}

type span struct{ from, to time.Duration }

// New is an idle array.
func New(t Timing) *Array {
	a := &Array{t: t, channels: make([]channel, t.Channels)}
	for i := range a.channels {
		a.channels[i].free = make([]time.Duration, t.Dies)
	}
	return a
}

// Busy is how long dies and their channels were at work, added over all dies.
func (a *Array) Busy() time.Duration { return a.busy }

// At is where a logical page lies that is striped over channels first, then dies, then planes.
func (t Timing) At(page int) Place {
	c, d, p := t.Channels, t.Dies, t.Planes
	return Place{Channel: page % c, Die: page / c % d, Plane: page / (c * d) % p, Row: page / (c * d * p)}
}

// Reset makes the array idle, at time 0.
func (a *Array) Reset() {
	for i := range a.channels {
		clear(a.channels[i].free)
		a.channels[i].crossed = a.channels[i].crossed[:0]
	}
	a.busy = 0
}

// Run reserves the array for operations, in the order in which they wait, and returns when each is done; the next call overwrites that.
// Arrivals may not fall within a channel.
func (a *Array) Run(ops []Op) []time.Duration {
	a.done = slices.Grow(a.done[:0], len(ops))[:len(ops)]
	if a.t.Sense+a.t.Program+a.t.Erase+a.t.Cross == 0 { // not limited
		for i, o := range ops {
			a.done[i] = o.At
		}
		return a.done
	}
	if a.by == nil {
		a.by = make([][]int32, len(a.channels))
	}
	for c := range a.by {
		a.by[c] = a.by[c][:0]
	}
	for i, o := range ops {
		a.by[o.Place.Channel] = append(a.by[o.Place.Channel], int32(i))
	}
	r := &a.run
	r.gone = slices.Grow(r.gone[:0], len(ops))[:len(ops)]
	clear(r.gone)
	for c, list := range a.by {
		if len(list) > 0 {
			r.rows.reset(len(ops))
			r.begin(a, &a.channels[c], ops, list, a.done)
			r.all()
			r.leave()
		}
	}
	r.ops, r.done = nil, nil
	return a.done
}

// Check reports the first place outside of the array.
func (t Timing) Check(p Place) error {
	if p.Channel < 0 || p.Channel >= t.Channels || p.Die < 0 || p.Die >= t.Dies || p.Plane < 0 || p.Plane >= t.Planes || p.Row < 0 {
		return fmt.Errorf("csdshim: nand: %+v of %d channels, %d dies, %d planes: no such page", p, t.Channels, t.Dies, t.Planes)
	}
	return nil
}

// fit is the first time, not before at, at which a channel is idle for d.
func (c *channel) fit(at, d time.Duration) time.Duration {
	i := len(c.crossed)
	for i > 0 && c.crossed[i-1].to > at { // what is over does not matter, and most is
		i--
	}
	for _, s := range c.crossed[i:] {
		if at+d <= s.from && at < s.from {
			break
		}
		if at < s.to {
			at = s.to
		}
	}
	return at
}

// take marks the channel as crossed and keeps the spans sorted, neighbours joined.
func (c *channel) take(from, to time.Duration) {
	if from == to {
		return
	}
	i := len(c.crossed)
	for i > 0 && c.crossed[i-1].from > from {
		i--
	}
	if i > 0 && c.crossed[i-1].to == from {
		c.crossed[i-1].to = to
		i--
	} else {
		c.crossed = append(c.crossed, span{})
		copy(c.crossed[i+1:], c.crossed[i:])
		c.crossed[i] = span{from, to}
	}
	if i+1 < len(c.crossed) && c.crossed[i+1].from == c.crossed[i].to {
		c.crossed[i].to = c.crossed[i+1].to
		c.crossed = append(c.crossed[:i+1], c.crossed[i+2:]...)
	}
}

// forget drops what was over before a time: nothing that arrives later can lie there.
func (c *channel) forget(before time.Duration) {
	n := 0
	for n < len(c.crossed) && c.crossed[n].to <= before {
		n++
	}
	c.crossed = append(c.crossed[:0], c.crossed[n:]...)
}
