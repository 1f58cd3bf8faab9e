//go:build !linux

package retrieval

import "runtime"

// yield lets others run.
func yield() { runtime.Gosched() }
