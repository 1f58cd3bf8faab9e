package csdshim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// Listen makes the drive's socket, for this user only. A socket file that nobody listens on any more is replaced; one that
// somebody serves is ErrLocked, and a file that is no socket is left alone.
func Listen(socket string) (net.Listener, error) {
	if info, err := os.Lstat(socket); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("csdshim: %s is there and is not a socket: choose another path: %w", socket, ErrRefused)
		}
		if c, err := net.DialTimeout("unix", socket, time.Second); err == nil {
			c.Close()
			return nil, fmt.Errorf("csdshim: %s: a drive serves this socket already: %w", socket, ErrLocked)
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("csdshim: %s: %w", socket, err)
		}
		if err := os.Remove(socket); err != nil {
			return nil, fmt.Errorf("csdshim: %s: stale socket: %w", socket, err)
		}
	}
	l, err := listenPrivate(socket)
	if err != nil {
		return nil, fmt.Errorf("csdshim: %w", err)
	}
	return l, nil
}
