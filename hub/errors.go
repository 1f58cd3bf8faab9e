package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

var (
	// ErrName is wrapped by errors about a name that has the form of no source.
	ErrName = errors.New("not a model name")
	// ErrNotFound is wrapped when no source has the model: no such path, repository, package or file.
	ErrNotFound = errors.New("model not found")
	// ErrChecksum is wrapped when a source delivered other bytes than it should; they have been removed.
	ErrChecksum = errors.New("wrong checksum")
	// ErrNoPip is wrapped when a source needs pip and the machine has none.
	ErrNoPip = errors.New("no pip found")
	// ErrOffline is wrapped when a source needs the network and Options.Offline forbids it.
	ErrOffline = errors.New("offline")
	// ErrUnreachable is wrapped when a server does not answer.
	ErrUnreachable = errors.New("cannot be reached")
	// ErrAccess is wrapped when a repository wants a token or the acceptance of a licence.
	ErrAccess = errors.New("access refused")
	// ErrNoSpace is wrapped when the cache folder's disk is full.
	ErrNoSpace = errors.New("no space left")
	// ErrReadOnly is wrapped when the cache folder cannot be written.
	ErrReadOnly = errors.New("cache folder cannot be written")
)

// explain names the cause of a failed write in the cache folder, so that the user reads what to do instead of an errno.
func (h *Hub) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, ErrNoSpace) || errors.Is(err, ErrReadOnly):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("hub: cache %s: %w: free some or choose another folder with --home or TERRACE_HOME (%v)", h.home, ErrNoSpace, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("hub: cache %s: %w: choose another folder with --home or TERRACE_HOME (%v)", h.home, ErrReadOnly, err)
	}
	return err
}
