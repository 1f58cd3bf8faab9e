package csdshim

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"terrace/csdshim/wire"
	"terrace/internal/vfs/view"
)

// sendFile writes a frame with a file beside it.
func sendFile(c net.Conn, frame []byte, f *os.File) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.ErrUnsupported
	}
	_, _, err := u.WriteMsgUnix(frame, unix.UnixRights(int(f.Fd())), nil)
	return err
}

// greeting reads a connection's beginning and keeps a file that comes with it.
type greeting struct {
	c    net.Conn
	file *os.File
	over bool // no more files: plain reads
}

// Read reads bytes, and the file that lies beside them.
func (g *greeting) Read(p []byte) (n int, err error) {
	u, ok := g.c.(*net.UnixConn)
	if g.over || !ok {
		return g.c.Read(p)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := u.ReadMsgUnix(p, oob)
	n = max(n, 0) // -1 with an error, which no io.Reader may say
	if errors.Is(err, io.EOF) {
		err = io.EOF
	}
	messages, parseErr := unix.ParseSocketControlMessage(oob[:oobn])
	if parseErr != nil {
		return n, err // files that are cut short are the kernel's to close
	}
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			g.drop()
			g.file = os.NewFile(uintptr(fd), "shared memory")
		}
	}
	return n, err
}

// shared is the memory whose file came, of that size; nil where none came. The file is closed.
func (g *greeting) shared(bytes uint32) (v *view.View, err error) {
	if g.file != nil && bytes > 0 && bytes <= wire.MaxShareBytes {
		v, err = view.Shared(g.file, int64(bytes))
	}
	g.drop()
	return v, err
}

func (g *greeting) drop() {
	if g.file != nil {
		g.file.Close()
		g.file = nil
	}
}
