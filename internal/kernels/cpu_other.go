//go:build !amd64 || purego

package kernels

func detect() []isa { return []isa{isaGo} }
