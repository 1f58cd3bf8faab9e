package xla

import "errors"

// ErrPlugin is returned where a backend needs a PJRT plugin that is not there; the message says how to get it.
var ErrPlugin = errors.New("PJRT plugin missing")
