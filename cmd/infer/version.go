package main

import (
	"crypto/sha256"
	_ "embed" // for the commit of a source archive
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// version is the release.
const version = "0.1.0"

// commit is what a build without version control stamps: go build -ldflags "-X main.commit=$(git rev-parse HEAD)" (the Makefile
// does, with "+" behind it where there are changes). The Go tool stamps none into what 'go run' makes, or in a worktree of git.
var commit string

// archived is the commit that 'git archive' has written into a source archive; in a checkout it is a placeholder.
//
//go:embed commit.txt
var archived string

func init() { register(newVersion) }

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Which release this is, and the commit it was built from",
		Args:  noCommand,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.stdout, "infer version %s\n", buildLine())
			return err
		},
	}
}

// versionLine names the release, the commit it was built from, and the Go toolchain.
func versionLine() string {
	from, _ := builtFrom()
	return fmt.Sprintf("%s (%s, %s %s/%s)", version, from, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// builtFrom is the commit that this binary is a build of, and whether that says everything.
func builtFrom() (from string, exact bool) {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		bi = &debug.BuildInfo{}
	}
	return commitOf(bi, commit, archived)
}

// commitLetters is how much of a commit's hash is shown.
const commitLetters = 12

// commitOf finds the commit in what the Go tool stamped, in what the linker was given, in the source archive's file, and in
// the version of the module, in this order.
func commitOf(bi *debug.BuildInfo, linked, archived string) (from string, exact bool) {
	revision, modified := "", false
	for _, s := range bi.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if revision == "" {
		revision, modified = strings.CutSuffix(strings.TrimSpace(linked), "+")
	}
	if file := strings.TrimSpace(archived); revision == "" && !strings.HasPrefix(file, "$") && len(file) >= commitLetters {
		return file[:commitLetters] + " from an archive", false // nobody knows what was changed since it was unpacked
	}
	switch {
	case len(revision) >= commitLetters && modified:
		return revision[:commitLetters] + " with changes", false
	case len(revision) >= commitLetters:
		return revision[:commitLetters], true
	case bi.Main.Version != "" && bi.Main.Version != "(devel)":
		return bi.Main.Version, true
	}
	return "unknown commit", false
}

// buildLine is versionLine and, where its commit does not say everything, a hash of the binary: two builds never pass for one.
func buildLine() string {
	if _, exact := builtFrom(); exact {
		return versionLine()
	}
	if h := binaryHash(); h != "" {
		return fmt.Sprintf("%s, binary %s", versionLine(), h)
	}
	return versionLine()
}

// binaryHash is the beginning of the hash of this process's binary, read once; empty where it cannot be read.
var binaryHash = sync.OnceValue(func() string {
	name, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:6])
})
