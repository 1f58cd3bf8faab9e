package kernels

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets TERRACE_CPU force the path of benchmarks and of tests that do not walk over all paths.
func TestMain(m *testing.M) {
	if err := Select(os.Getenv("TERRACE_CPU")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
