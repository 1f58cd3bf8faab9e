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

	begun, said time.Time // without a terminal
}

func (a *app) newBar() *bar {
	return &bar{w: a.stderr, show: a.isTTY(a.stderr) && !a.quiet, quiet: a.quiet}
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
	if total <= 0 {
		total = -1
	}
	if b.pb == nil || label != b.label {
		b.clear()
		b.label = label
		b.pb = progressbar.NewOptions64(total, progressbar.OptionSetWriter(b.w), progressbar.OptionSetDescription(label),
			progressbar.OptionShowBytes(isBytes), progressbar.OptionThrottle(65*time.Millisecond), progressbar.OptionSetWidth(24),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	}
	if total > 0 && b.pb.GetMax64() != total {
		b.pb.ChangeMax64(total)
	}
	_ = b.pb.Set64(done)
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
