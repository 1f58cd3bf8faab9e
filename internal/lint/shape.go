package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Shape are figures of one package, tests left out, that say how easily it is read from its first file to its last.
//
// The reading order is that in which the package comment names the files ("layer.go"). A call from a file to an earlier
// one goes against it; files that are not named come last. Without a list the order with the fewest such calls is taken.
type Shape struct {
	Files, Lines int
	Fields       Largest // the struct type with most fields
	Methods      Largest // the type with most methods

	Calls, CallsAgainst int      // places where a function of another file is called
	Pairs, PairsAgainst int      // ordered pairs of files with such a place
	Against             []string // the pairs against the reading order, those with most places first
	Listed              bool     // the package comment names files
	Unlisted            []string // files that it does not name

	PrefillFiles int // files that ask .prefill
	NilFiles     int // files that compare a receiver with nil
}

// Largest is a type with the number of its fields or methods.
type Largest struct {
	Type string
	N    int
}

// Values are the figures by the names that testdata/shape.txt limits.
func (s *Shape) Values() map[string]int {
	return map[string]int{"files": s.Files, "lines": s.Lines, "fields": s.Fields.N, "methods": s.Methods.N,
		"calls-against-percent": percent(s.CallsAgainst, s.Calls), "pairs-against-percent": percent(s.PairsAgainst, s.Pairs),
		"prefill-files": s.PrefillFiles, "nil-files": s.NilFiles}
}

func percent(part, all int) int { return (100*part + all/2) / max(1, all) }

func (s *Shape) String() string {
	order := "in the order of doc.go"
	if !s.Listed {
		order = "in the best order found: doc.go names no files"
	} else if len(s.Unlisted) > 0 {
		order += ", which does not name " + strings.Join(s.Unlisted, " ")
	}
	return fmt.Sprintf("%d files, %d lines; most fields %s %d, most methods %s %d; %d calls between files, %d against (%d %%), in %d pairs of files, %d against (%d %%), %s; .prefill asked in %d files; receivers compared with nil in %d files",
		s.Files, s.Lines, s.Fields.Type, s.Fields.N, s.Methods.Type, s.Methods.N, s.Calls, s.CallsAgainst, percent(s.CallsAgainst, s.Calls), s.Pairs, s.PairsAgainst, percent(s.PairsAgainst, s.Pairs), order,
		s.PrefillFiles, s.NilFiles)
}

var fileName = regexp.MustCompile(`\b\w+\.go\b`)

// Measure gives the shape of the package in a folder; nil where there is none. Names are resolved within the package only,
// so that no other has to be compiled.
func Measure(r *Repo, dir string) *Shape {
	s := &Shape{}
	var files []*ast.File
	var names, listed []string
	fields, methods := map[string]int{}, map[string]int{}
	for _, f := range r.Files {
		if f.Dir() != dir || f.Syntax == nil || f.IsTest() {
			continue
		}
		files, names = append(files, f.Syntax), append(names, path.Base(f.Path))
		s.Lines += bytes.Count(f.Source, []byte("\n"))
		listed = append(listed, fileName.FindAllString(f.Syntax.Doc.Text(), -1)...)
		prefill, nils := asks(f.Syntax, fields, methods)
		s.PrefillFiles, s.NilFiles = s.PrefillFiles+min(prefill, 1), s.NilFiles+min(nils, 1)
	}
	if len(files) == 0 {
		return nil
	}
	s.Files, s.Fields, s.Methods = len(files), largest(fields), largest(methods)
	calls := callsBetween(r.fset, files)
	listed = slices.DeleteFunc(listed, func(name string) bool { return !slices.Contains(names, name) })
	order := names
	if s.Listed = len(listed) > 0; s.Listed {
		s.Unlisted = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "doc.go" || slices.Contains(listed, name) })
		order = append(listed, s.Unlisted...)
	} else {
		order = bestOrder(order, calls)
	}
	for _, c := range slices.SortedFunc(maps.Keys(calls), func(a, b call) int {
		return cmp.Or(calls[b]-calls[a], strings.Compare(a.from, b.from), strings.Compare(a.to, b.to))
	}) {
		s.Calls, s.Pairs = s.Calls+calls[c], s.Pairs+1
		if slices.Index(order, c.from) > slices.Index(order, c.to) {
			s.CallsAgainst, s.PairsAgainst = s.CallsAgainst+calls[c], s.PairsAgainst+1
			s.Against = append(s.Against, fmt.Sprintf("%s → %s %d", c.from, c.to, calls[c]))
		}
	}
	return s
}

func largest(counts map[string]int) Largest {
	most := Largest{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > most.N {
			most = Largest{name, counts[name]}
		}
	}
	return most
}

// asks counts in one file the places that ask .prefill and those that compare a receiver with nil, and adds fields and
// methods by type.
func asks(f *ast.File, fields, methods map[string]int) (prefill, nils int) {
	receiver := ""
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			receiver = ""
			if owner, _, ok := strings.Cut(funcName(n), "."); ok {
				methods[owner]++
				if names := n.Recv.List[0].Names; len(names) == 1 {
					receiver = names[0].Name
				}
			}
		case *ast.TypeSpec:
			if t, ok := n.Type.(*ast.StructType); ok {
				for _, field := range t.Fields.List {
					fields[n.Name.Name] += max(1, len(field.Names))
				}
			}
		case *ast.SelectorExpr:
			if n.Sel.Name == "prefill" {
				prefill++
			}
		case *ast.BinaryExpr:
			x, ok := n.X.(*ast.Ident)
			y, isName := n.Y.(*ast.Ident)
			if ok && isName && receiver != "" && x.Name == receiver && y.Name == "nil" {
				nils++
			}
		}
		return true
	})
	return prefill, nils
}

// call is a pair of files: a function in from calls one in to.
type call struct{ from, to string }

func callsBetween(fset *token.FileSet, files []*ast.File) map[call]int {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: emptyImporter{}, Error: func(error) {}} // what other packages would say is missing
	pkg, _ := conf.Check("measured", fset, files, info)
	at := func(pos token.Pos) string { return path.Base(fset.PositionFor(pos, false).Filename) }
	calls := map[call]int{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fn, ok := info.Uses[calledName(c.Fun)].(*types.Func)
			if !ok || fn.Pkg() != pkg {
				return true
			}
			if pair := (call{at(c.Pos()), at(fn.Pos())}); pair.from != pair.to {
				calls[pair]++
			}
			return true
		})
	}
	return calls
}

// calledName is the name of a called function, without receiver and type arguments; nil where it has none.
func calledName(e ast.Expr) *ast.Ident {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	case *ast.IndexExpr:
		return calledName(e.X)
	}
	return nil
}

type emptyImporter struct{}

func (emptyImporter) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}

// bestOrder moves one file at a time to where the fewest calls go against the order, as long as that helps.
func bestOrder(names []string, calls map[call]int) []string {
	order := slices.Sorted(slices.Values(names))
	for better := true; better; {
		better = false
		for _, name := range names {
			from := slices.Index(order, name)
			rest := slices.Delete(slices.Clone(order), from, from+1)
			cost := make([]int, len(order)) // of standing behind i others, compared with standing first
			for i, other := range rest {
				cost[i+1] = cost[i] + calls[call{name, other}] - calls[call{other, name}]
			}
			if least := slices.Min(cost); least < cost[from] {
				order, better = slices.Insert(rest, slices.Index(cost, least), name), true
			}
		}
	}
	return order
}
