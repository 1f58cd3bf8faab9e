//go:build unix

package attend

import (
	"syscall"
	"testing"
)

// processorTime reports what the process's threads computed since a mark: on a machine that others use too, the steadier figure.
func processorTime(b *testing.B) (report func()) {
	total := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	from := total()
	return func() { b.ReportMetric(float64(total()-from)/float64(b.N), "cpu-ns/op") }
}
