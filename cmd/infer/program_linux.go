package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram lets go of the pages of the program's own file that are in memory: those that start-up and loading have used, some 30 MB,
// count as this process's and are hardly used again. What is used comes back from the page cache. Pages that can be written are left alone.
func forgetProgram() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		var start, end uintptr
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &start, &end, &mode); n == 3 && mode[1] == '-' && strings.HasSuffix(strings.TrimSpace(line), " "+self) {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED) // advice
		}
	}
}
