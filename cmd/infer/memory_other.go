//go:build !linux

package main

// memoryLimits are not known on this system: --memory says what there is.
func memoryLimits() []memoryLimit { return nil }
