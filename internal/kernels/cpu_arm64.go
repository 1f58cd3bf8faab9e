//go:build arm64 && !purego

package kernels

import "golang.org/x/sys/cpu"

// detect lists the paths of this CPU in rising order: every arm64 CPU that Go runs on has NEON.
func detect() []isa {
	paths := []isa{isaGo, isaNEON}
	if cpu.ARM64.HasASIMDDP {
		paths = append(paths, isaDotProd)
		if cpu.ARM64.HasI8MM {
			paths = append(paths, isaI8MM)
		}
	}
	return paths
}
