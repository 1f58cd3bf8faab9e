package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// bar is a progress bar on stderr, shown only on a terminal and without --quiet; otherwise its methods do nothing.
type bar struct {
	w     io.Writer
	show  bool
	label string
	pb    *progressbar.ProgressBar
}

func (a *app) newBar() *bar { return &bar{w: a.stderr, show: a.isTTY(a.stderr) && !a.quiet} }

// bytes shows done of total bytes (total 0: not known yet).
func (b *bar) bytes(label string, done, total int64) { b.set(label, done, total, true) }

// count shows done of total items.
func (b *bar) count(label string, done, total int) { b.set(label, int64(done), int64(total), false) }

func (b *bar) set(label string, done, total int64, isBytes bool) {
	if !b.show {
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
