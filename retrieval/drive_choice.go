package retrieval

import (
	"context"
	"time"

	"terrace/csdshim"
	"terrace/kvmanager"
	"terrace/policy"
)

// driveTiming is how long a drive took for its scores by its own account, of all texts.
type driveTiming struct {
	questions int
	bytes     float64 // of KV of the tokens scored: keys and values
	seconds   float64
}

// timedQuestions is from how many questions on a drive's own timing counts more than its profile.
const timedQuestions = 32

// driveMessage is a message to a drive, of one question or of several.
type driveMessage struct {
	seconds float64 // since it arrived, that are counted
}

// add counts a question. The drive answers those of a message one after another and times each from the message's arrival: the message
// took what the last of them did. What lies far back counts less and less.
func (d *driveTiming) add(m *driveMessage, t csdshim.Timing, bytes int64) {
	if d.questions++; d.bytes > 1<<40 {
		d.bytes, d.seconds = d.bytes/2, d.seconds/2
	}
	took := float64(max(t.MeasuredNs, t.TotalNs)) / 1e9
	d.bytes += float64(bytes)
	d.seconds += max(took-m.seconds, 0)
	m.seconds = max(m.seconds, took)
}

// rate is f_s, bytes of KV scored a second; 0 = not known yet.
func (d *driveTiming) rate() float64 {
	if d.questions < timedQuestions || d.seconds == 0 {
		return 0
	}
	return d.bytes / d.seconds
}

// Room is what host memory has place for of a text whose cold tokens the host alone scores.
type Room int

const (
	NoRoom     Room = iota // not for the low-bit keys of all tokens: the drive scores
	CodesOnly              // for those and for what a step lays out; what a step reads may all come from the drive
	CodesAndKV             // for what a step reads too
)

// WeighUse is why host or drive scores a text's cold tokens: what a layer's scores take either way, in seconds, and what the host
// has room for.
type WeighUse struct {
	Alone     float64 // the host scores all
	Together  float64 // host and drive score their parts at the same time, and the drive is asked
	RoundTrip float64 // of a question, in Together
	Reads     float64 // all that a step reads of a layer comes from the drive: the most that CodesOnly adds to Alone
	Room      Room
}

// Host says that the host scores alone.
func (w WeighUse) Host() bool {
	switch w.Room {
	case CodesAndKV:
		return w.Alone <= w.Together
	case CodesOnly:
		return w.Alone+w.Reads <= w.Together
	}
	return false
}

// Weigh is what a layer's scores take, layer bytes of KV of which a part, most, may be hot at most, by a split's rates: of the host
// alone, and of host and drive together where a question to the drive takes roundTrip seconds beside its scoring.
func Weigh(b policy.Balanced, layer, most, roundTrip float64) WeighUse {
	hot := min(b.Share, most) * layer
	return WeighUse{Alone: layer / b.FC, Together: max(hot/b.FC, roundTrip+(layer-hot)/b.FS), RoundTrip: roundTrip}
}

// weighing decides who scores a text's cold tokens, and keeps why.
type weighing struct {
	c   *cached
	use *WeighUse // nil = nothing was to be decided
}

// decide decides at the end of a prompt of n tokens whether the drive scores; the text does not depend on it.
func (x *weighing) decide(n int) {
	c := x.c
	h, f := c.drive, c.t.f
	if h == nil || c.cache != nil || !h.rank.Weighs() {
		return
	}
	drive, ok := f.o.Store.(interface {
		Identity() csdshim.Identity
		RoundTrip(ctx context.Context) (time.Duration, error)
	})
	b, timed := h.rates()
	if !ok || b.FC == 0 || b.FS == 0 {
		return
	}
	c.t.set.Placer.SetBalance(b)
	trip := time.Duration(0)
	if !timed { // a rate that was timed has it
		var err error
		if trip, err = drive.RoundTrip(context.Background()); err != nil {
			return // who asks the drive next says so
		}
	}
	layer, share := f.mostBytes(n), float64(1)
	room, hot := c.budget.room(n)
	if hot >= 0 {
		share = float64(hot) / float64(layer*int64(f.o.Shape.Layers.Keepers()))
	}
	w := Weigh(c.t.set.Placer.Balanced(), float64(layer), share, trip.Seconds())
	read, _, _ := c.budget.most(n)
	w.Room, w.Reads = room, readTime(drive.Identity(), read, f.mostBytes(1))
	x.use = &w
	if w.Host() {
		c.t.set.Placer.SetBalance(policy.Balance{}) // as much is hot as fits
		c.drive = nil
	}
}

// readTime is the seconds that a drive takes to deliver n single tokens of a layer, bytes each: whole pages of flash, keys and values on
// pages of their own where it scores keys there, and their bytes over its link.
func readTime(id csdshim.Identity, n int, bytes int64) float64 {
	seconds, page, parts := 0.0, int64(max(id.PageBytes, 1)), int64(1)
	if id.Keys == csdshim.KeysNAND.String() {
		parts = 2
	}
	if id.LinkBytesPerS > 0 {
		seconds = float64(n) * float64(bytes) / id.LinkBytesPerS
	}
	if id.NANDBytesPerS > 0 {
		pages := parts * ((bytes/parts + page - 1) / page)
		seconds = max(seconds, float64(n)*float64(pages*page)/id.NANDBytesPerS)
	}
	return seconds
}

// room is what a text's share of host memory has place for beside the whole layer that a prompt reads: with less than what a step
// reads hot, nearly all of that comes from the drive (SmolLM2, 3,000 tokens, alpha=0.1: hits 0.62 where it lacks a tenth, 0.88 where
// it fits). hot is the bytes left for hot tokens where the drive scores too; -1 = no bound.
func (b *cacheBudget) room(n int) (r Room, hot int64) {
	f := b.c.t.f
	if f.o.BudgetBytes == 0 {
		return CodesAndKV, -1
	}
	l := b.c.t.sel.probe(b.firstSelecting())
	l.N, l.Prompt = n, n
	read, _, _ := b.most(n)
	layer, texts := f.mostBytes(n), int64(f.caches+1)
	share := (f.o.BudgetBytes - f.charged) / texts
	if int64(f.o.Sequences) > texts { // the first to come leave the others theirs
		texts = int64(f.o.Sequences)
		share = f.o.BudgetBytes / texts
	}
	codes, blocks := b.c.t.sel.beside(n), int64(f.o.Shape.Layers.Keepers()+8)*int64(f.o.KV.BlockBytes())
	hot = max(share-blocks-b.beside(&kvmanager.Growth{Tokens: n}), 0) // while a drive scores, without the codes
	switch {
	case codes+blocks+layer+int64(read*f.kvBytesPerToken())+f.o.BudgetBytes/32 <= share:
		r = CodesAndKV
	case codes+layer/texts <= hot: // one text at a time reads a layer whole
		r = CodesOnly
	}
	return r, hot
}

// noteAlone notes for reports that the host was chosen.
func (x *weighing) noteAlone(n int) {
	c := x.c
	capacity := c.budget.hotCapacity(n)
	c.t.f.accounts.balance = &BalanceUse{Balanced: c.t.set.Placer.Balanced(), Tokens: n, HotTokens: capacity, Capacity: capacity, HostTokens: n, Weighed: x.use}
}
