package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// TestHeapInHugePages: the system notes the advice for the memory that the heap grew by.
func TestHeapInHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
		t.Skip("a system without transparent huge pages")
	}
	room := hugePages(8 << 20)
	defer runtime.KeepAlive(room)
	var start uintptr
	if _, err := fmt.Sscanf(fmt.Sprintf("%p", room), "0x%x", &start); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			inside = from <= start && start < to
		} else if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && inside {
			if !strings.Contains(flags+" ", " hg ") {
				t.Errorf("flags of the memory at %#x are%s, want hg (huge pages advised) among them", start, flags)
			}
			return
		}
	}
	t.Errorf("no memory at %#x in /proc/self/smaps", start)
}
