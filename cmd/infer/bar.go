package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/schollz/progressbar/v3"

	"terrace/internal/units"
)

// lineEvery is how often progress is said where there is no terminal; a variable for tests.
var lineEvery = time.Minute

// bar is a progress bar on stderr: drawn on a terminal, elsewhere a line a minute; with --quiet its methods do nothing.
type bar struct {
	w     io.Writer
	show  bool
	quiet bool
	label string
	pb    *progressbar.ProgressBar

	rate rate

	begun, said time.Time // without a terminal
}

func (c *console) newBar() *bar {
	return &bar{w: c.stderr, show: c.isTTY(c.stderr) && !c.quiet, quiet: c.quiet}
}

// say prints how far it is, once a minute.
func (b *bar) say(label string, done, total int64, isBytes bool) {
	now := time.Now()
	if b.begun.IsZero() {
		b.begun, b.said = now, now
	}
	if now.Sub(b.said) < lineEvery {
		return
	}
	b.said = now
	number := func(n int64) string {
		if isBytes {
			return units.FormatBytes(n)
		}
		return strconv.FormatInt(n, 10)
	}
	far := number(done)
	if total > 0 {
		far += " of " + number(total)
	}
	fmt.Fprintf(b.w, "infer: %s: %s after %v\n", label, far, now.Sub(b.begun).Round(time.Second))
}

// bytes shows done of total bytes (total 0: not known yet).
func (b *bar) bytes(label string, done, total int64) { b.set(label, done, total, true) }

// count shows done of total items.
func (b *bar) count(label string, done, total int) { b.set(label, int64(done), int64(total), false) }

func (b *bar) set(label string, done, total int64, isBytes bool) {
	if !b.show {
		if !b.quiet {
			b.say(label, done, total, isBytes)
		}
		return
	}
	if b.pb == nil || label != b.label {
		b.clear()
		b.label, b.rate = label, rate{}
		b.pb = progressbar.NewOptions64(max(total, -1), progressbar.OptionSetWriter(b.w), progressbar.OptionThrottle(65*time.Millisecond), progressbar.OptionSetWidth(barWidth),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())
	}
	b.rate.add(time.Now(), done)
	b.pb.Describe(b.describe(done, total, isBytes, terminalWidth(b.w)))
	if total <= 0 {
		_ = b.pb.Add(0)
		return
	}
	if b.pb.GetMax64() != total {
		b.pb.ChangeMax64(total)
	}
	_ = b.pb.Set64(done)
}

// barWidth is how wide the bar itself is; barRest is what the library writes around it.
const (
	barWidth = 14
	barRest  = barWidth + 9
)

// describe says what is done of how much, how fast and for how long still, in a terminal so wide; the label is cut where that is
// too narrow.
func (b *bar) describe(done, total int64, isBytes bool, width int) string {
	number := func(n int64) string {
		if isBytes {
			return units.FormatBytes(n)
		}
		return strconv.FormatInt(n, 10)
	}
	far := number(done)
	if total > 0 {
		far += "/" + number(total)
	}
	if perSecond := b.rate.perSecond(); perSecond > 0 {
		if isBytes {
			far += " " + units.FormatBytes(int64(perSecond)) + "/s"
		}
		if left := time.Duration(float64(total-done) / perSecond * float64(time.Second)).Round(time.Second); left > 0 {
			far += " " + left.String()
		}
	}
	return shortened(b.label, max(8, width-barRest-len(far)-1)) + " " + far
}

// rate is how fast something goes, over the last seconds.
type rate struct {
	at   []time.Time
	done []int64
}

// rateOver is what a rate is taken over, at most and at least.
const (
	rateOver  = 10 * time.Second
	rateLeast = time.Second
)

func (r *rate) add(at time.Time, done int64) {
	for len(r.at) > 1 && at.Sub(r.at[0]) > rateOver {
		r.at, r.done = r.at[1:], r.done[1:]
	}
	if n := len(r.at); n > 1 && at.Sub(r.at[n-2]) < rateOver/100 { // a hundred moments are enough
		r.at, r.done = r.at[:n-1], r.done[:n-1]
	}
	r.at, r.done = append(r.at, at), append(r.done, done)
}

// perSecond is 0 as long as there is too little to tell. What was there at the first moment counts for nothing: it may have been
// resumed.
func (r *rate) perSecond() float64 {
	last := len(r.at) - 1
	if last < 1 || r.at[last].Sub(r.at[0]) < rateLeast {
		return 0
	}
	return float64(r.done[last]-r.done[0]) / r.at[last].Sub(r.at[0]).Seconds()
}

// clear removes the bar, so that a line can be printed.
func (b *bar) clear() {
	if b.pb != nil {
		_ = b.pb.Clear()
		b.pb = nil
	}
}

// done removes the bar for good.
func (b *bar) done() { b.clear() }
