//go:build amd64 && !purego

package kernels

import "github.com/klauspost/cpuid/v2"

// detect lists the paths of this CPU in rising order. The AMX path also needs the kernel's leave to use tiles.
func detect() []isa {
	paths := []isa{isaGo}
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C) {
		return paths
	}
	paths = append(paths, isaAVX2)
	if !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VNNI) {
		return paths
	}
	paths = append(paths, isaAVX512)
	if cpuid.CPU.Supports(cpuid.AVX512BF16, cpuid.AMXTILE, cpuid.AMXBF16) && allowTiles() {
		paths = append(paths, isaAMX)
	}
	return paths
}
