package csdshim

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"terrace/internal/clock"
)

// coarse is what the Go runtime's timers may come late: it waits in whole milliseconds when nothing else is to be done,
// which is longer than a request to a drive takes.
const coarse = 1500 * time.Microsecond

// wait waits for d on a clock, on the real one to some 15 µs.
func wait(ctx context.Context, c clock.Clock, d time.Duration) error {
	if c.Modelled() || d <= 0 {
		return c.Sleep(ctx, d)
	}
	until := c.Now() + d
	if d > coarse {
		if err := c.Sleep(ctx, d-coarse); err != nil {
			return err
		}
	}
	for {
		left := until - c.Now()
		if err := ctx.Err(); err != nil || left <= 0 {
			return err
		}
		// Linux lets a thread sleep 50 µs longer than it asked for, to wake several at once; that would be half of what a
		// command takes. The setting is the thread's own; a kernel that refuses it is late by so much.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		ts := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&ts, nil) // cut short by a signal: the rest is slept in the next round
	}
}
