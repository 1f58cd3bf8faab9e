package lint

import (
	"fmt"
	"go/ast"
	"slices"
)

// obvious methods implement interfaces of the standard library: their name says what they do.
var obvious = []string{"String", "Error", "Unwrap", "Is", "Close", "Len", "Less", "Swap", "Write", "Read", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText"}

// Exported checks that every exported name outside commands and tests says what it is. A group of constants or variables
// may be explained by its own comment.
func Exported(r *Repo) (found []Finding) {
	for _, f := range r.Files {
		if f.Syntax == nil || f.IsTest() || f.Syntax.Name.Name == "main" || isGenerated(f) || isTestOnly(f.Dir()) {
			continue
		}
		missing := func(n ast.Node, name string) {
			found = append(found, Finding{r.at(f, n.Pos()), fmt.Sprintf("exported %s has no comment: say what it is, with shapes, units and errors, or make it lower-case", name)})
		}
		for _, d := range f.Syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && receiverExported(d) && !(d.Recv != nil && slices.Contains(obvious, d.Name.Name)) {
					missing(d, funcName(d))
				}
			case *ast.GenDecl:
				said := false // an enumeration is explained by its type or by its first comment
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok {
						said = said || v.Doc != nil || v.Comment != nil || d.Lparen.IsValid() && v.Type != nil
					}
					if name := undocumented(d, s); name != "" && !said {
						missing(s, name)
					}
				}
			}
		}
	}
	return found
}

// undocumented is the first exported name of a declaration without any comment: of its own, behind it, or of its group.
func undocumented(group *ast.GenDecl, spec ast.Spec) string {
	if group.Doc != nil {
		return ""
	}
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && s.Comment == nil {
			return s.Name.Name
		}
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() && s.Doc == nil && s.Comment == nil {
				return n.Name
			}
		}
	}
	return ""
}

// receiverExported is true for functions and for methods of exported types.
func receiverExported(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	name := funcName(fn)
	return ast.IsExported(name)
}
