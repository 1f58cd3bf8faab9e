//go:build !linux

package csdshim

import (
	"context"
	"time"

	"terrace/internal/clock"
)

// wait waits for d on a clock.
func wait(ctx context.Context, c clock.Clock, d time.Duration) error { return c.Sleep(ctx, d) }
