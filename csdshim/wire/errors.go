package wire

import (
	"errors"
	"fmt"
)

var (
	// ErrFrame: the bytes are not a frame of this protocol, or its checksum does not match.
	ErrFrame = errors.New("malformed frame")
	// ErrVersion: the other side speaks another version of the protocol. See [versionError].
	ErrVersion = errors.New("other protocol version")
)

// versionError says which version the other side speaks. It wraps ErrVersion.
type versionError struct{ Got uint8 }

func (e *versionError) Error() string {
	return fmt.Sprintf("csdshim: the other side speaks version %d, this side version %d: use client and drive of the same release", e.Got, Version)
}

// Unwrap makes errors.Is(err, ErrVersion) hold.
func (e *versionError) Unwrap() error { return ErrVersion }

func malformed(format string, args ...any) error {
	return fmt.Errorf("csdshim: "+format+": %w", append(args, ErrFrame)...)
}
