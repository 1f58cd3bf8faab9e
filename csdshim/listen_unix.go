//go:build unix

package csdshim

import (
	"net"
	"os"
	"path/filepath"
)

// listenPrivate listens on a socket that only this user may connect to, from its first moment on: it is made in a private
// folder beside its place, closed to others, and then moved there.
func listenPrivate(socket string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(socket), ".csd")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	temp := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(temp, 0o600); err == nil {
		err = os.Rename(temp, socket)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &listener{UnixListener: l, path: socket}, nil
}

// listener removes its socket when it is closed.
type listener struct {
	*net.UnixListener
	path string
}

func (l *listener) Close() error {
	os.Remove(l.path)
	return l.UnixListener.Close()
}
