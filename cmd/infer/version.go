package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
)

// version is the release; the commit comes from the build information.
const version = "0.1.0"

// versionLine names the release, the commit it was built from, and the Go toolchain.
func versionLine() string {
	commit, _ := builtFrom()
	return fmt.Sprintf("%s (%s, %s %s/%s)", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// builtFrom is the commit that this binary is a build of, and whether that says everything.
func builtFrom() (commit string, exact bool) {
	commit = "unknown commit"
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				commit, exact = s.Value[:12], true
			case s.Key == "vcs.modified" && s.Value == "true":
				return commit + " with changes", false
			}
		}
	}
	return commit, exact
}

// buildLine is versionLine and, where its commit does not say everything, a hash of the binary: two builds never pass for one.
func buildLine() string {
	if _, exact := builtFrom(); exact {
		return versionLine()
	}
	name, err := os.Executable()
	if err != nil {
		return versionLine()
	}
	f, err := os.Open(name)
	if err != nil {
		return versionLine()
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return versionLine()
	}
	return fmt.Sprintf("%s, binary %x", versionLine(), h.Sum(nil)[:6])
}
