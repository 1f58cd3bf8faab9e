package kernels

import (
	"fmt"
	"strings"
)

// isa is a CPU path: a set of instructions that kernels may use. A higher path includes the lower ones of its architecture,
// so a kernel without a version for the selected path takes the next lower one.
type isa uint8

const (
	isaGo     isa = iota // plain Go
	isaAVX2              // AVX2, FMA, F16C
	isaAVX512            // AVX-512 F, BW, DQ, VL, VNNI
	isaAMX               // AVX-512 with BF16, and AMX tiles with bf16

	isaNEON    // arm64: NEON, which all have
	isaDotProd // SDOT (FEAT_DotProd)
	isaI8MM    // SMMLA (FEAT_I8MM)
)

var isaNames = [...]string{isaGo: "purego", isaAVX2: "avx2", isaAVX512: "avx512", isaAMX: "amx", isaNEON: "neon", isaDotProd: "dotprod", isaI8MM: "i8mm"}

// available and current are set before any init function runs, so onSelect may be used in one.
var (
	available = detect()
	current   = available[len(available)-1]
	listeners []func(isa)
)

// Select forces the CPU path of all kernels: "purego", "avx2", "avx512", "amx", "neon", "dotprod" or "i8mm"; "" or "auto" is the
// fastest that this CPU and build have. The error wraps ErrPath and names what is available. Not safe while kernels run.
func Select(path string) error {
	want := available[len(available)-1]
	if path != "" && path != "auto" {
		i := indexOfPath(path)
		if i < 0 {
			return fmt.Errorf("kernels: CPU path %q: want one of %s: %w", path, strings.Join(Available(), ", "), ErrPath)
		}
		want = available[i]
	}
	current = want
	for _, f := range listeners {
		f(want)
	}
	return nil
}

func indexOfPath(path string) int {
	for i, a := range available {
		if isaNames[a] == path {
			return i
		}
	}
	return -1
}

// Path names the selected CPU path.
func Path() string { return isaNames[current] }

// Available names the CPU paths that Select accepts on this machine, slowest first.
func Available() []string {
	names := make([]string, len(available))
	for i, a := range available {
		names[i] = isaNames[a]
	}
	return names
}
