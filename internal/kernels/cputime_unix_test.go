//go:build unix

package kernels

import "golang.org/x/sys/unix"

// cpuTime is the seconds of processor time that this process has used.
func cpuTime() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
