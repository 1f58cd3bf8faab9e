//go:build !linux

package uring

import (
	"fmt"
	"time"
)

// Ring is not available on this system.
type Ring struct{}

// Open always fails.
func Open(depth int) (*Ring, error) { return nil, fmt.Errorf("uring: not Linux: %w", ErrUnsupported) }

// Depth is 0.
func (r *Ring) Depth() int { return 0 }

// Submit takes nothing.
func (r *Ring) Submit(reqs []Request) (int, error) { return 0, ErrUnsupported }

// Reap gives nothing.
func (r *Ring) Reap(out []Result) []Result { return out }

// Wake fails.
func (r *Ring) Wake() error { return ErrUnsupported }

// awaitOne fails.
func (r *Ring) awaitOne() error { return ErrUnsupported }

// AwaitSome fails.
func (r *Ring) AwaitSome(int, time.Duration) error { return ErrUnsupported }

// Close does nothing.
func (r *Ring) Close() error { return nil }
