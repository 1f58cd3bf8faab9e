//go:build !linux

package view

import "errors"

// Map is errors.ErrUnsupported on this system.
func Map(fd int, bytes int64) (*View, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (v *View) Close() error { return nil }
