package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is the release; the commit comes from the build information.
const version = "0.1.0"

// versionLine names the release, the commit it was built from, and the Go toolchain.
func versionLine() string {
	commit := "unknown commit"
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				commit = s.Value[:12]
			}
		}
	}
	return fmt.Sprintf("%s (%s, %s %s/%s)", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
