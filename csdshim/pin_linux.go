package csdshim

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// PinToCore keeps every thread of this process on one CPU core, as a drive's engine is one core; threads made later inherit
// it. A core that this process may not use is an error.
func PinToCore(core int) error {
	var set unix.CPUSet
	set.Zero()
	set.Set(core)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("csdshim: core %d: %w", core, err)
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("csdshim: core %d: %w: %w", core, err, ErrUnsupported)
		}
	}
	return nil
}
