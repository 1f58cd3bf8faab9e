//go:build unix

package main

import "golang.org/x/sys/unix"

// peakRSSBytes is the most memory this process has held resident, mapped files included; 0 where the system does not tell.
func peakRSSBytes() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return int64(u.Maxrss) * rssUnitBytes
}
