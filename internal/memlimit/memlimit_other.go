//go:build !linux

package memlimit

import "runtime"

// All are not known on this system.
func All() []Limit { return nil }

// Resident is what Go's runtime has from the system, which tells no more here.
func Resident() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}
