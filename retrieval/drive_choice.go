package retrieval

import (
	"context"
	"time"

	"terrace/csdshim"
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

// WeighUse is why host or drive scores a text's cold tokens: what a layer's scores take either way, in seconds, and whether the
// host has room for the low-bit keys of all tokens.
type WeighUse struct {
	Alone     float64 // the host scores all
	Together  float64 // host and drive score their parts at the same time, and the drive is asked
	RoundTrip float64 // of a question, in Together
	Room      bool
}

// Host says that the host scores alone.
func (w WeighUse) Host() bool { return w.Room && w.Alone <= w.Together }

// Weigh is what a layer's scores take, layer bytes of KV, by a split's rates: of the host alone, and of host and drive together where a
// question to the drive takes roundTrip seconds beside its scoring.
func Weigh(b policy.Balanced, layer, roundTrip float64) WeighUse {
	hot := b.Share * layer
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
	w := Weigh(c.t.set.Placer.Balanced(), float64(f.mostBytes(n)), trip.Seconds())
	w.Room = c.budget.holdsIndex(n)
	x.use = &w
	if w.Host() {
		c.t.set.Placer.SetBalance(policy.Balance{}) // as much is hot as fits
		c.drive = nil
	}
}

// holdsIndex reports whether a text's share of host memory has room for the low-bit keys of n tokens beside a whole layer of the prompt
// and what a step reads. With less than that hot, nearly all tokens that a step reads come from the drive (SmolLM2, 3,000 tokens,
// alpha=0.1: hits 0.62 where it lacks a tenth, 0.88 where it fits).
func (b *cacheBudget) holdsIndex(n int) bool {
	f := b.c.t.f
	if f.o.BudgetBytes == 0 {
		return true
	}
	l := b.c.t.sel.probe(b.firstSelecting())
	l.N, l.Prompt = n, n
	read, _, _ := b.most(n)
	layer := f.mostBytes(n)
	need := b.c.t.sel.beside(n) + layer + int64(f.o.Shape.Layers.Keepers()+8)*int64(f.o.KV.BlockBytes()) + int64(read*f.kvBytesPerToken()) + f.o.BudgetBytes/32
	share := (f.o.BudgetBytes - f.charged) / int64(f.caches+1)
	if f.o.Sequences > f.caches+1 { // the first to come leave the others theirs
		share = f.o.BudgetBytes / int64(f.o.Sequences)
	}
	return need <= share
}

// noteAlone notes for reports that the host was chosen.
func (x *weighing) noteAlone(n int) {
	c := x.c
	capacity := c.budget.hotCapacity(n)
	c.t.f.accounts.balance = &BalanceUse{Balanced: c.t.set.Placer.Balanced(), Tokens: n, HotTokens: capacity, Capacity: capacity, HostTokens: n, Weighed: x.use}
}
