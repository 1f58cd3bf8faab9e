package vfs

import "errors"

var (
	// ErrLocked: another process, or another user in this one, holds the lock; the error says who.
	ErrLocked = errors.New("locked")
	// ErrNoDirect: the file system has no O_DIRECT.
	ErrNoDirect = errors.New("no direct I/O")
	// ErrNoSpace: the file system (or the cap of a Mem) has no room left.
	ErrNoSpace = errors.New("no space left")
)
