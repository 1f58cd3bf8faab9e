//go:build unix

package csdshim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// waitStopped waits until every thread of a process has stopped, which takes a moment after the signal.
func waitStopped(t *testing.T, pid int) {
	t.Helper()
	if !eventually(10*time.Second, func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(tasks) == 0 {
			t.Skip("no /proc: nobody says when a process has stopped")
		}
		return !slices.ContainsFunc(tasks, func(path string) bool {
			stat, _ := os.ReadFile(path)
			_, state, _ := strings.Cut(string(stat), ") ")
			return !strings.HasPrefix(state, "T")
		})
	}) {
		t.Fatal("the process goes on after SIGSTOP")
	}
}

// TestStopped stops a drive's process in the middle of its work (SIGSTOP): calls end by their deadline, and the drive goes
// on when it may.
func TestStopped(t *testing.T) {
	sockets, err := os.MkdirTemp("", "csd")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	p := startProcess(t, t.TempDir(), filepath.Join(sockets, "s"), "")
	c := p.connect(t, [16]byte{1})
	defer c.Abandon()
	w := newCache(smallShape(CodesInt8, true), 1)
	write(t, c, w, 5, 12)
	p.cmd.Process.Signal(syscall.SIGSTOP)
	waitStopped(t, p.cmd.Process.Pid)
	for name, do := range requests(c, w, 5, 192) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		if err := do(ctx); !errors.Is(err, ErrTimeout) {
			t.Errorf("%s of a stopped drive: %v", name, err)
		}
		cancel()
	}
	if _, err := Dial(context.Background(), p.socket, ClientOptions{Timeout: 30 * time.Millisecond}); !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrLost) {
		t.Errorf("dial of a stopped drive: %v", err)
	}
	p.cmd.Process.Signal(syscall.SIGCONT)
	again := c
	if c.Err() != nil { // a request that was half sent at its deadline ends the connection
		again = p.connect(t, [16]byte{1})
		defer again.Abandon()
		again.shapes[5] = w.shape
	}
	checkFetch(t, again, w, 5)
}
