package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// PackageDocs checks that every package says what it is for.
func PackageDocs(r *Repo) (found []Finding) {
	docs, first := map[string]string{}, map[string]*File{}
	for _, f := range r.Files {
		if f.Syntax == nil || f.IsTest() {
			continue
		}
		if first[f.Dir()] == nil {
			first[f.Dir()] = f
		}
		if f.Syntax.Doc != nil {
			docs[f.Dir()] += f.Syntax.Doc.Text()
		}
	}
	for dir, f := range first {
		want := "Package " + f.Syntax.Name.Name + " "
		if f.Syntax.Name.Name == "main" {
			want = "Command " + path.Base(dir) + " "
		}
		if !strings.HasPrefix(docs[dir], want) {
			found = append(found, Finding{dir, fmt.Sprintf("no package comment: write doc.go with %q and what the package owns, what it never does, units and shapes, concurrency", "// "+want+"…")})
		}
	}
	return found
}

// Names checks for folders that could hold anything.
func Names(r *Repo) (found []Finding) {
	seen := map[string]bool{}
	for _, f := range r.Files {
		base := path.Base(f.Dir())
		if f.IsGo() && !seen[f.Dir()] && slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc"}, base) {
			seen[f.Dir()] = true
			found = append(found, Finding{f.Dir(), "a package called " + base + " says nothing: name it after its one idea"})
		}
	}
	return found
}

// bannedCalls are selectors of the standard library that only some folders may use.
var bannedCalls = []struct {
	pkg   string
	names []string
	what  string
}{
	{"fmt", []string{"Print", "Printf", "Println"}, "only cmd/ prints: return the text, or take an io.Writer or a callback"},
	{"os", []string{"Stdout", "Stderr", "Stdin"}, "only cmd/ uses the standard streams: take an io.Writer or io.Reader"},
	{"os", []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, "the environment is read in cmd/ only: make it a field of Options"},
	{"os", []string{"Exit"}, "only cmd/ ends the process: return an error"},
	{"log", []string{"Print", "Printf", "Println", "Fatal", "Fatalf", "Fatalln"}, "only cmd/ logs: return an error or take a callback"},
}

// Calls checks who prints, reads the environment, ends the process. cmd/, tests and generators (package main) may.
func Calls(r *Repo) (found []Finding) {
	for _, f := range r.Files {
		if f.Syntax == nil || f.IsTest() || f.Syntax.Name.Name == "main" || isTestOnly(f.Dir()) {
			continue
		}
		imports := importedAs(f.Syntax)
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if id, ok := call.Fun.(*ast.Ident); ok && (id.Name == "println" || id.Name == "print") {
					found = append(found, Finding{r.at(f, n.Pos()), id.Name + " is for debugging: remove it"})
				}
			}
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			for _, b := range bannedCalls {
				if imports[id.Name] == b.pkg && slices.Contains(b.names, sel.Sel.Name) {
					found = append(found, Finding{r.at(f, n.Pos()), b.pkg + "." + sel.Sel.Name + ": " + b.what})
				}
			}
			return true
		})
	}
	return found
}

// importedAs maps the local name of each import to its path.
func importedAs(f *ast.File) map[string]string {
	m := map[string]string{}
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		m[name] = p
	}
	return m
}

// unsafeAllowed are the folders that may import unsafe: kernels, views of mapped bytes, and memory shared with the kernel.
var unsafeAllowed = []string{"internal/kernels", "weights/mapped", "internal/vfs/uring", "internal/vfs/view", "internal/vulkan"}

// Unsafe checks who imports unsafe, and that the default build has no cgo.
func Unsafe(r *Repo) (found []Finding) {
	for _, f := range r.Files {
		if f.Syntax == nil {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			switch {
			case spec.Path.Value == `"unsafe"` && !f.IsTest() && !slices.ContainsFunc(unsafeAllowed, func(dir string) bool { return inDir(f.Dir(), dir) }):
				found = append(found, Finding{r.at(f, spec.Pos()), "unsafe is for " + strings.Join(unsafeAllowed, " and ") + " only: use their checked views"})
			case spec.Path.Value == `"C"` && !strings.Contains(string(f.Source[:min(len(f.Source), 2000)]), "//go:build"):
				found = append(found, Finding{r.at(f, spec.Pos()), "cgo in the default build: put the file behind a build tag"})
			}
		}
	}
	return found
}

var (
	todoPattern  = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	issuePattern = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\(#\d+\)`)
)

// Todos checks that what is left to do has an issue.
func Todos(r *Repo) (found []Finding) {
	for _, f := range r.Files {
		if f.Syntax == nil || inDir(f.Dir(), "internal/lint") {
			continue
		}
		for _, group := range f.Syntax.Comments {
			for _, c := range group.List {
				if todoPattern.MatchString(c.Text) && !issuePattern.MatchString(c.Text) {
					found = append(found, Finding{r.at(f, c.Pos()), "a TODO without an issue: do it, or open an issue and write TODO(#N)"})
				}
			}
		}
	}
	return found
}

// machinePattern matches what belongs to one machine: its folders and the hosts of package indexes, which pip's own
// configuration names. The pieces are joined here so that this file does not match itself.
var machinePattern = regexp.MustCompile(strings.Join([]string{
	`(?:^|[\s"'=:(` + "`" + `])/work` + `/`, `/tmp/` + `(?:models|work)\b`, `\.` + `library/`, `/root` + `/`, `/home/` + `[a-z]`,
	`pypi\.` + `org`, `pythonhosted\.` + `org`, `proxy\.golang\.` + `org`,
}, "|"))

// Machines checks that no file names a machine's own paths or a package index.
func Machines(r *Repo) (found []Finding) {
	for _, f := range r.Files {
		if !isText(f.Source) {
			continue
		}
		for i, line := range strings.Split(string(f.Source), "\n") {
			if m := machinePattern.FindString(line); m != "" {
				found = append(found, Finding{fmt.Sprintf("%s:%d", f.Path, i+1), fmt.Sprintf("%q belongs to one machine: use a relative path, a flag, or pip's and Go's own configuration", strings.TrimSpace(m))})
			}
		}
	}
	return found
}

func isText(b []byte) bool { return !bytes.Contains(b[:min(len(b), 8000)], []byte{0}) }

// Goroutines checks that policies start none: a plan depends on what was observed and on nothing else.
func Goroutines(r *Repo) (found []Finding) {
	for _, f := range r.Files {
		if f.Syntax == nil || f.IsTest() || !inDir(f.Dir(), "policy") {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				found = append(found, Finding{r.at(f, g.Pos()), "a policy starts no goroutine: return a plan and let the engine run it"})
			}
			return true
		})
	}
	return found
}

// funcLines is the number of lines of a function, its comment not counted.
func funcLines(fset *token.FileSet, fn *ast.FuncDecl) int {
	return fset.PositionFor(fn.End(), false).Line - fset.PositionFor(fn.Pos(), false).Line + 1
}
