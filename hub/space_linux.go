package hub

import (
	"fmt"

	"golang.org/x/sys/unix"

	"terrace/internal/units"
)

// checkSpace refuses a download that cannot fit before its first byte. A file system that does not say is not asked twice.
func checkSpace(dir string, needBytes int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return nil
	}
	if free := int64(st.Bavail) * st.Bsize; needBytes > free {
		return fmt.Errorf("%s: %s needed, %s free: %w: free some or choose another folder with --home or TERRACE_HOME",
			dir, units.FormatBytes(needBytes), units.FormatBytes(free), ErrNoSpace)
	}
	return nil
}
