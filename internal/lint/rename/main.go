// Command rename gives the module in the current folder another path: the module lines of go.mod files, the imports of every Go file, and
// nothing else. It is what make module MODULE=PATH runs, for who publishes the module under an address of their own.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "rename: want the new module path, such as example.org/me/terrace")
		os.Exit(2)
	}
	n, err := rename(".", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
	fmt.Println(n, "files changed")
}

// modulePath is what a path may look like that imports can name.
var modulePath = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$`)

var errPath = errors.New("no module path")

// rename changes the files below root and returns how many it changed. A path that is none changes nothing.
func rename(root, to string) (changed int, err error) {
	if !modulePath.MatchString(to) {
		return 0, fmt.Errorf("%q: %w", to, errPath)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(mod), "\n")
	from, ok := strings.CutPrefix(line, "module ")
	if !ok {
		return 0, fmt.Errorf("go.mod begins with %q, want its module line", line)
	}
	from = strings.TrimSpace(from)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || d.Name() != "go.mod" && !strings.HasSuffix(path, ".go"):
			return nil
		}
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := renamed(path, old, from, to)
		if err != nil || bytes.Equal(old, text) {
			return err
		}
		changed++
		return os.WriteFile(path, text, 0o644)
	})
	return changed, err
}

// renamed is a file's text with imports of packages of from as those of to.
func renamed(path string, text []byte, from, to string) ([]byte, error) {
	if filepath.Base(path) == "go.mod" {
		return regexp.MustCompile(`(?m)^module `+regexp.QuoteMeta(from)+`(/.*)?$`).ReplaceAll(text, []byte("module "+to+"$1")), nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	for _, spec := range slices.Backward(file.Imports) { // from the end, so that places stay right
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil || name != from && !strings.HasPrefix(name, from+"/") {
			continue
		}
		at := set.Position(spec.Path.Pos()).Offset
		text = slices.Concat(text[:at], []byte(strconv.Quote(to+strings.TrimPrefix(name, from))), text[at+len(spec.Path.Value):])
	}
	return text, nil
}
