//go:build !linux

package engine

import "runtime"

// yield lets others run.
func yield() { runtime.Gosched() }
