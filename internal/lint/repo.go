package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Finding is one broken rule: where, what is wrong, what to do.
type Finding struct {
	Where string // path relative to the repository, with :line where there is one
	What  string
}

func (f Finding) String() string { return f.Where + ": " + f.What }

// File is one file of the repository. Go files are parsed; files below testdata are left out.
type File struct {
	Path   string // slash-separated, relative to the repository
	Source []byte
	Syntax *ast.File // nil unless it is a Go file that parses
}

// Dir is the folder of the file, "." at the top.
func (f *File) Dir() string { return path.Dir(f.Path) }

// IsTest reports whether the file is part of tests only.
func (f *File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// IsGo reports whether the file is Go source.
func (f *File) IsGo() bool { return strings.HasSuffix(f.Path, ".go") }

// Repo is the repository's files in the order of their paths.
type Repo struct {
	Module string
	Files  []*File
	fset   *token.FileSet
}

// fileBytesMax leaves data out: no source is that large.
const fileBytesMax = 4 << 20

// New is an empty repository of a module.
func New(module string) *Repo { return &Repo{Module: module, fset: token.NewFileSet()} }

// Load reads the repository at root. Folders that the go tool ignores (names that begin with a dot or underscore,
// testdata) are left out, except .ci.
func Load(root string) (*Repo, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("lint: %w", err)
	}
	line, _, _ := strings.Cut(string(mod), "\n")
	r := New(strings.TrimSpace(strings.TrimPrefix(line, "module")))
	err = filepath.WalkDir(root, func(full string, e fs.DirEntry, err error) error {
		if err != nil || full == root {
			return err
		}
		rel, err := filepath.Rel(root, full)
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() {
			if name != ".ci" && (name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if name == ".git" { // of a second working tree: a file that says where the first is
			return nil
		}
		info, err := e.Info()
		if err != nil || !e.Type().IsRegular() || info.Size() > fileBytesMax {
			return err
		}
		return r.add(full, filepath.ToSlash(rel))
	})
	if err != nil {
		return nil, fmt.Errorf("lint: %w", err)
	}
	slices.SortFunc(r.Files, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
	return r, nil
}

func (r *Repo) add(full, rel string) error {
	b, err := os.ReadFile(full)
	if err != nil {
		return err
	}
	r.AddSource(rel, b)
	return nil
}

// AddSource adds a file by its text. A Go file that does not parse keeps a nil Syntax: the compiler says more about it.
func (r *Repo) AddSource(rel string, source []byte) {
	f := &File{Path: rel, Source: source}
	if f.IsGo() {
		if syntax, err := parser.ParseFile(r.fset, rel, source, parser.ParseComments|parser.SkipObjectResolution); err == nil {
			f.Syntax = syntax
		}
	}
	r.Files = append(r.Files, f)
}

// at is the position of a node as Finding.Where.
func (r *Repo) at(f *File, pos token.Pos) string {
	return fmt.Sprintf("%s:%d", f.Path, r.fset.PositionFor(pos, false).Line)
}

// isGenerated reports whether a file says that a program wrote it.
func isGenerated(f *File) bool { return f.Syntax != nil && ast.IsGenerated(f.Syntax) }

// inDir reports whether a folder is dir or below it.
func inDir(folder, dir string) bool { return folder == dir || strings.HasPrefix(folder, dir+"/") }
