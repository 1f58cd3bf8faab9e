//go:build unix

package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Used is the processor time of all threads of this process since its start, in user and system; 0 where the system refuses to say.
func Used() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
