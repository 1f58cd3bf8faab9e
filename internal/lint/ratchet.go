package lint

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

const (
	funcLinesMax = 70
	fileLinesMax = 500
	// longDirective above a function exempts it, with a reason: generators, and a model's Forward that reads top-down.
	longDirective = "//lint:long "
)

// Long measures functions over 70 and files over 500 lines: "PATH FUNC" or "PATH" → lines. Generated files are left out,
// and the functions of tests, whose tables may be long.
func Long(r *Repo) map[string]int {
	long := map[string]int{}
	for _, f := range r.Files {
		if f.Syntax == nil || isGenerated(f) {
			continue
		}
		if n := bytes.Count(f.Source, []byte("\n")); n > fileLinesMax {
			long[f.Path] = n
		}
		if f.IsTest() {
			continue
		}
		for _, d := range f.Syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || hasDirective(fn.Doc) {
				continue
			}
			if n := funcLines(r.fset, fn); n > funcLinesMax {
				long[f.Path+" "+funcName(fn)] = n
			}
		}
	}
	return long
}

func hasDirective(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		reason, ok := strings.CutPrefix(c.Text, longDirective)
		return ok && len(strings.Fields(reason)) >= 3
	})
}

// funcName is Name or Type.Name.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// Ratchet compares the measured lengths with the committed list: nothing new, nothing longer, and what has become shorter
// is written down so that it stays so.
func Ratchet(long map[string]int, list []byte) (found []Finding) {
	allowed := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(list))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var n int
		count, what, _ := strings.Cut(line, " ")
		if _, err := fmt.Sscanf(count, "%d", &n); err != nil {
			found = append(found, Finding{ratchetFile, fmt.Sprintf("line %q: want LINES PATH [FUNC]", line)})
			continue
		}
		allowed[strings.TrimSpace(what)] = n
	}
	for what, n := range long {
		limit, kind := funcLinesMax, "function"
		if !strings.Contains(what, " ") {
			limit, kind = fileLinesMax, "file"
		}
		switch was, ok := allowed[what]; {
		case !ok:
			found = append(found, Finding{what, fmt.Sprintf("%s of %d lines, limit %d: split it by what its parts do", kind, n, limit)})
		case n > was:
			found = append(found, Finding{what, fmt.Sprintf("%s grew from %d to %d lines: split it by what its parts do", kind, was, n)})
		case n < was:
			found = append(found, Finding{what, fmt.Sprintf("%s shrank from %d to %d lines: write %d into internal/lint/%s", kind, was, n, n, ratchetFile)})
		}
	}
	for what := range allowed {
		if _, ok := long[what]; !ok {
			found = append(found, Finding{what, "short enough now, or gone: remove its line from internal/lint/" + ratchetFile})
		}
	}
	return found
}

const ratchetFile = "testdata/long.txt"
