package kernels

import (
	"fmt"
	"os"
	"testing"
	"unsafe"
)

// TestMain lets TERRACE_CPU force the path of benchmarks and of tests that do not walk over all paths.
func TestMain(m *testing.M) {
	if err := Select(os.Getenv("TERRACE_CPU")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

func floatsOf(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
