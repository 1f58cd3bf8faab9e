package lint

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// measured are the packages that a token passes while it is decoded.
var measured = []string{"engine", "retrieval", "kvmanager", "kvmanager/tokencache", "bench"}

// TestShape prints the figures of the inner packages (go test -run Shape -v) and holds them below testdata/shape.txt.
func TestShape(t *testing.T) {
	r, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile("testdata/shape.txt")
	if err != nil {
		t.Fatal(err)
	}
	shapes := map[string]*Shape{}
	for _, dir := range measured {
		if s := Measure(r, dir); s != nil {
			shapes[dir] = s
			t.Logf("%s: %v\nagainst: %s", dir, s, strings.Join(s.Against, ", "))
		}
	}
	if s := shapes["engine"]; s == nil || s.Calls == 0 {
		t.Errorf("engine: %v: nothing was measured", s)
	}
	for _, f := range aboveLimits(shapes, string(limits)) {
		t.Error(f)
	}
}

// aboveLimits are the figures above the limits, one "MAX FOLDER FIGURE" a line.
func aboveLimits(shapes map[string]*Shape, limits string) (found []Finding) {
	for lines := bufio.NewScanner(strings.NewReader(limits)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var limit int
		var dir, figure string
		if _, err := fmt.Sscan(line, &limit, &dir, &figure); err != nil || shapes[dir] == nil {
			found = append(found, Finding{"testdata/shape.txt", fmt.Sprintf("line %q: want MAX FOLDER FIGURE of a measured folder", line)})
			continue
		}
		switch n, ok := shapes[dir].Values()[figure]; {
		case !ok:
			found = append(found, Finding{"testdata/shape.txt", fmt.Sprintf("line %q: %s is not measured", line, figure)})
		case n > limit:
			found = append(found, Finding{dir, fmt.Sprintf("%s is %d, at most %d: give the parts that grew a place of their own", figure, n, limit)})
		}
	}
	return found
}

// TestShapeOf measures a package of four files whose figures can be counted by hand.
func TestShapeOf(t *testing.T) {
	sources := map[string]string{
		"p/open.go":      "package p\n\nimport \"m/q\"\n\ntype store struct {\n\ta, b int\n\tq.Lower\n}\n\nfunc open() *store { s := &store{}; s.read(); s.read(); q.Other(); return s }\n",
		"p/read.go":      "package p\n\nfunc (s *store) read() {\n\tif s == nil || pass.prefill {\n\t\treturn\n\t}\n\ts.note(least[int](1, 2))\n}\n\nvar pass struct{ prefill bool }\n",
		"p/store.go":     "package p\n\nfunc (s *store) note(int) { open() }\n\nfunc least[T any](a, b T) T { return a }\n",
		"p/open_test.go": "package p\n\nfunc f() { open() }\n",
	}
	repo := func(doc string) *Repo {
		r := New("m")
		r.AddSource("p/doc.go", []byte(doc+"package p\n"))
		for name, text := range sources {
			r.AddSource(name, []byte(text))
		}
		return r
	}
	if s := Measure(New("m"), "p"); s != nil {
		t.Errorf("no package: %v", s)
	}
	s := Measure(repo("// Package p is read from open.go over read.go to store.go, not gone.go.\n"), "p")
	want := Shape{Files: 4, Lines: 27, Fields: Largest{"store", 3}, Methods: Largest{"store", 2}, Calls: 5, CallsAgainst: 1, Pairs: 3, PairsAgainst: 1, Against: []string{"store.go → open.go 1"}, Listed: true, PrefillFiles: 1, NilFiles: 1}
	if fmt.Sprint(*s) != fmt.Sprint(want) {
		t.Errorf("%+v\nwant %+v", *s, want)
	}
	if s := Measure(repo("// Package p begins with store.go and read.go.\n"), "p"); s.CallsAgainst != 4 || fmt.Sprint(s.Unlisted) != "[open.go]" {
		t.Errorf("against the reading direction: %v", s)
	}
	if s := Measure(repo("// Package p says nothing of its files.\n"), "p"); s.Listed || s.CallsAgainst != 1 {
		t.Errorf("without an order: %v", s)
	}
	for limits, want := range map[string]string{"# x\n\n2 p methods\n1 p nil-files\n": "", "1 p methods\n": "p: methods is 2, at most 1", "1 p beauty": "beauty is not measured", "many": "want MAX", "1 q lines": "a measured folder"} {
		found := aboveLimits(map[string]*Shape{"p": s}, limits)
		if want == "" && len(found) > 0 || want != "" && (len(found) != 1 || !strings.Contains(found[0].String(), want)) {
			t.Errorf("%q: %v, want %q", limits, found, want)
		}
	}
}
