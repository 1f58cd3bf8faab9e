package memlimit

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// All are the bounds that the system tells of: what the machine has free, the control groups' limits, ulimit -v.
func All() []Limit {
	limits := cgroupLimits("/proc/self/cgroup", "/sys/fs/cgroup")
	if free := availableIn("/proc/meminfo"); free > 0 {
		limits = append(limits, Limit{What: "this machine", Bytes: free, Free: free})
	}
	var as unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &as) == nil && as.Cur < math.MaxInt64 {
		limits = append(limits, Limit{What: "ulimit -v", Bytes: int64(as.Cur), Free: int64(as.Cur) - addressSpace(), Mapped: true, Process: true})
	}
	return limits
}

// availableIn is what a meminfo file says can be allocated without swapping; 0 where it does not tell.
func availableIn(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kib int64
		if rest, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
			if _, err := fmt.Sscan(rest, &kib); err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

// Resident is how much memory this process has now, mapped files included; 0 where the system does not tell.
func Resident() int64 { return statm(1) }

// addressSpace is how much this process has mapped.
func addressSpace() int64 { return statm(0) }

// statm is a field of the process's memory counts, in bytes.
func statm(field int) int64 {
	fields := strings.Fields(readSmall("/proc/self/statm"))
	if len(fields) <= field {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[field], 10, 64)
	return pages * int64(os.Getpagesize())
}

// cgroupLimits are the memory limits of the control groups that a membership file lists, v1 and v2, those of groups above
// included; root is where they are mounted.
func cgroupLimits(membership, root string) (limits []Limit) {
	for _, line := range strings.Split(readSmall(membership), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		dir, limit, usage, cache := root, "memory.max", "memory.current", "inactive_file "
		switch {
		case parts[0] == "0" && parts[1] == "": // v2
		case strings.Contains(","+parts[1]+",", ",memory,"):
			dir, limit, usage, cache = filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "
		default:
			continue
		}
		for group := filepath.Clean("/" + parts[2]); ; group = filepath.Dir(group) {
			at := filepath.Join(dir, group)
			if n, ok := readNumber(filepath.Join(at, limit)); ok && n < 1<<60 {
				used, _ := readNumber(filepath.Join(at, usage))
				limits = append(limits, Limit{What: "the control group's limit", Bytes: n, Free: n - used + statOf(filepath.Join(at, "memory.stat"), cache), Process: true})
			}
			if group == "/" {
				break
			}
		}
	}
	return limits
}

// statOf is a number of a memory.stat file by its key, which ends with a space; 0 where there is none.
func statOf(path, key string) int64 {
	for _, line := range strings.Split(readSmall(path), "\n") {
		if rest, ok := strings.CutPrefix(line, key); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

func readNumber(path string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(readSmall(path)), 10, 64)
	return n, err == nil
}

// readSmall is a system file's text; "" where it cannot be read.
func readSmall(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
