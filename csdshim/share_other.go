//go:build !linux

package csdshim

import (
	"errors"
	"net"
	"os"

	"terrace/internal/vfs/view"
)

// sendFile is not available on this system.
func sendFile(net.Conn, []byte, *os.File) error { return errors.ErrUnsupported }

// greeting reads a connection's beginning.
type greeting struct {
	c    net.Conn
	over bool
}

// Read reads bytes.
func (g *greeting) Read(p []byte) (int, error) { return g.c.Read(p) }

// shared is nil: no files come on this system.
func (g *greeting) shared(uint32) (*view.View, error) { return nil, nil }

func (g *greeting) drop() {}
