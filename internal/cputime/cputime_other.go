//go:build !unix

package cputime

import "time"

var started = time.Now()

// Used is the time since the start: this system is not asked for the processor's.
func Used() time.Duration { return time.Since(started) }
