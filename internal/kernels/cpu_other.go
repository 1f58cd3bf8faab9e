//go:build !(amd64 || arm64) || purego

package kernels

func detect() []isa { return []isa{isaGo} }
