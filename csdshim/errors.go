package csdshim

import (
	"context"
	"errors"

	"terrace/csdshim/flash"
	"terrace/csdshim/hardware"
	"terrace/csdshim/wire"
)

var (
	// ErrFull: the drive's capacity does not hold what is to be written; the message has the numbers.
	ErrFull = flash.ErrFull
	// ErrCorrupt: a stored page is not what was written; the message names its group.
	ErrCorrupt = flash.ErrCorrupt
	// ErrNotFound: the drive has no such sequence or group.
	ErrNotFound = flash.ErrNotFound
	// ErrFailed: a sync failed; the drive takes no more writes until it is restarted.
	ErrFailed = flash.ErrFailed
	// ErrLocked: another process serves the folder, or the socket.
	ErrLocked = flash.ErrLocked
	// ErrVersion: drive and client speak different versions of the protocol.
	ErrVersion = wire.ErrVersion
	// ErrFrame: the other side sent what is not a frame of the protocol, or not one that may come now.
	ErrFrame = wire.ErrFrame

	// ErrProfile: there is no such profile, or its text is not valid.
	ErrProfile = hardware.ErrProfile
	// ErrTrace: a line of page requests is not valid.
	ErrTrace = errors.New("bad trace")
	// ErrRequest: the request contradicts the sequence's shape or itself.
	ErrRequest = errors.New("bad request")
	// ErrUnsupported: this drive, or this sequence's layout, cannot do it.
	ErrUnsupported = errors.New("not supported")
	// ErrLost: the connection to the drive has ended. Nothing is retried here: the caller dials again, and what was
	// not acknowledged may or may not be stored.
	ErrLost = errors.New("connection to the drive is lost")
	// ErrTimeout: the drive did not answer within the deadline.
	ErrTimeout = errors.New("drive did not answer in time")
	// ErrDrive: the drive failed in a way that has no name of its own.
	ErrDrive = errors.New("drive failed")
	// ErrRefused: the drive does not talk to this user, or takes no more connections.
	ErrRefused = errors.New("drive refused the connection")
)

// codes are the errors that cross the wire, by number; the order is part of the protocol.
var codes = []error{ErrDrive, ErrFull, ErrCorrupt, ErrNotFound, ErrFailed, ErrRequest, ErrUnsupported, ErrFrame, ErrRefused, context.Canceled}

// failure turns an error into a message.
func failure(err error) wire.Failure {
	for i, e := range codes[1:] {
		if errors.Is(err, e) {
			return wire.Failure{Code: uint16(i + 1), Text: err.Error()}
		}
	}
	return wire.Failure{Text: err.Error()}
}

// remoteError is an error that the drive reported; it wraps the sentinel of its code.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

func remote(f wire.Failure) error {
	e := &remoteError{text: f.Text, is: ErrDrive}
	if int(f.Code) < len(codes) {
		e.is = codes[f.Code]
	}
	return e
}
