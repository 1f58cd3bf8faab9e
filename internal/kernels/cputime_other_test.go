//go:build !unix

package kernels

import "time"

var started = time.Now()

// cpuTime is the time since the start in seconds: this system is not asked for the processor's.
func cpuTime() float64 { return time.Since(started).Seconds() }
