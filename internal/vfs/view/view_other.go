//go:build !linux

package view

import (
	"errors"
	"os"
)

// Map is errors.ErrUnsupported on this system.
func Map(fd int, bytes int64) (*View, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (v *View) Close() error { return nil }

// Share is errors.ErrUnsupported on this system.
func Share(bytes int64) (*View, *os.File, error) { return nil, nil, errors.ErrUnsupported }

// Shared is errors.ErrUnsupported on this system.
func Shared(f *os.File, bytes int64) (*View, error) { return nil, errors.ErrUnsupported }
