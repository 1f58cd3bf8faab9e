package lint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// rules are all checks over syntax.
var rules = []struct {
	name  string
	check func(*Repo) []Finding
}{
	{"layers", Layers}, {"architecture", Architecture}, {"docs", PackageDocs}, {"exported", Exported}, {"names", Names}, {"calls", Calls}, {"unsafe", Unsafe},
	{"todos", Todos}, {"machines", Machines}, {"goroutines", Goroutines},
	{"length", func(r *Repo) []Finding {
		list, err := os.ReadFile(ratchetFile)
		if err != nil {
			return []Finding{{ratchetFile, err.Error()}}
		}
		return Ratchet(Long(r), list)
	}},
}

// TestRepository runs every rule over this repository.
func TestRepository(t *testing.T) {
	r, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Files) < 20 || r.Module == "" {
		t.Fatalf("only %d files of module %q: is this the repository?", len(r.Files), r.Module)
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			found := rule.check(r)
			slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Where, b.Where) })
			for _, f := range found {
				t.Error(f)
			}
		})
	}
}

// TestRules shows each rule a file that breaks it and one that does not.
func TestRules(t *testing.T) {
	source := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	long := strings.Repeat("\t_ = 0\n", 80)
	for _, c := range []struct {
		name, path, text string
		rule             string
		want             string // "" = nothing found
	}{
		{"upward import", "policy/x.go", source(`package policy`, `import _ "m/engine"`), "layers", "lower layer only"},
		{"sibling import", "attention/x.go", source(`package attention`, `import _ "m/offload"`), "layers", "sibling"},
		{"lower import", "engine/x.go", source(`package engine`, `import _ "m/model/xla"`, `import _ "m/internal/kernels/quant"`), "layers", ""},
		{"within a family", "weights/hf/x.go", source(`package hf`, `import _ "m/weights/gguf"`), "layers", ""},
		{"into a nested family", "model/x.go", source(`package model`, `import _ "m/model/xla"`), "layers", "lower layer only"},
		{"no layer", "stuff/x.go", "package stuff\n", "layers", "no layer"},
		{"policy with a clock", "policy/x.go", source(`package policy`, `import "time"`), "layers", "no clock"},
		{"retrieval with a model", "retrieval/x.go", source(`package retrieval`, `import _ "m/model"`), "layers", "without a model"},
		{"retrieval with a backend", "retrieval/x.go", source(`package retrieval`, `import _ "m/model/xla"`), "layers", "without a model"},
		{"retrieval over the cache", "retrieval/x.go", source(`package retrieval`, `import _ "m/kvmanager/tokencache"`, `import _ "m/offload"`, `import _ "m/csdshim"`, `import _ "m/attention/keyindex"`), "layers", ""},
		{"bench over the engine", "bench/x.go", source(`package bench`, `import _ "m/engine"`), "layers", ""},
		{"test support in the product", "policy/x.go", source(`package policy`, `import _ "m/internal/golden"`), "layers", "tests only"},
		{"enumeration", "hub/x.go", "package hub\nconst (\n\tA = iota // first\n\tB\n)\n", "exported", ""},
		{"test imports", "policy/x_test.go", source(`package policy`, `import _ "m/engine"`), "layers", ""},
		{"folder without a row", "hub/x.go", "package hub\n", "architecture", "no row for hub"},
		{"row of another layer", "ARCHITECTURE.md", "| 3 | `hub` | files |\n", "architecture", "3 there and 2"},
		{"row of an unknown folder", "ARCHITECTURE.md", "| 0 | `stuff` | all |\n", "architecture", "stuff"},
		{"row without its folder", "ARCHITECTURE.md", "| 2 | `hub` | files |\n", "architecture", "does not exist"},
		{"no package comment", "hub/x.go", "package hub\n", "docs", "doc.go"},
		{"package comment", "hub/x.go", "// Package hub finds.\npackage hub\n", "docs", ""},
		{"command comment", "cmd/infer/x.go", "// Command infer runs.\npackage main\n", "docs", ""},
		{"exported without a comment", "hub/x.go", "package hub\nfunc F() {}\n", "exported", "exported F has no comment"},
		{"exported method", "hub/x.go", "package hub\n// T is.\ntype T int\nfunc (t *T) M() {}\nfunc (T) String() string { return \"\" }\n", "exported", "T.M"},
		{"method of a private type", "hub/x.go", "package hub\ntype t int\nfunc (t) M() {}\n", "exported", ""},
		{"group with a comment", "hub/x.go", "package hub\n// Sizes.\nconst (\n\tA = 1\n\tB = 2\n)\n", "exported", ""},
		{"constant without a comment", "hub/x.go", "package hub\nconst A = 1\n", "exported", "exported A"},
		{"vague name", "internal/utils/x.go", "package utils\n", "names", "says nothing"},
		{"prints", "hub/x.go", source(`package hub`, `import "fmt"`, `func f() { fmt.Println(1) }`), "calls", "only cmd/ prints"},
		{"prints under another name", "hub/x.go", source(`package hub`, `import f "fmt"`, `func g() { f.Print(1) }`), "calls", "only cmd/ prints"},
		{"command prints", "cmd/infer/x.go", source(`package main`, `import "fmt"`, `func f() { fmt.Println(1) }`), "calls", ""},
		{"environment", "hub/x.go", source(`package hub`, `import "os"`, `var x = os.Getenv("X")`), "calls", "Options"},
		{"debugging", "hub/x.go", source(`package hub`, `func f() { println(1) }`), "calls", "remove it"},
		{"unsafe", "hub/x.go", source(`package hub`, `import _ "unsafe"`), "unsafe", "checked views"},
		{"unsafe kernels", "internal/kernels/x.go", source(`package kernels`, `import _ "unsafe"`), "unsafe", ""},
		{"cgo", "model/x.go", source(`package model`, `import "C"`), "unsafe", "build tag"},
		{"todo", "hub/x.go", source("package hub", "// "+"TODO: more"), "todos", "open an issue"},
		{"todo with issue", "hub/x.go", source("package hub", "// "+"TODO(#7): more"), "todos", ""},
		{"machine path", "README.md", "run it in /wo" + "rk/main\n", "machines", "one machine"},
		{"index host", "hub/x.go", "package hub // from py" + "pi.org\n", "machines", "one machine"},
		{"plain text", "README.md", "homework/main and /network/x\n", "machines", ""},
		{"goroutine in a policy", "policy/x.go", source("package policy", "func f() { go f() }"), "goroutines", "no goroutine"},
		{"goroutine elsewhere", "hub/x.go", source("package hub", "func f() { go f() }"), "goroutines", ""},
		{"long function", "hub/x.go", "package hub\nfunc f() {\n" + long + "}\n", "length", "82 lines"},
		{"long function, exempt", "hub/x.go", "package hub\n//lint:long reads top-down as the paper\nfunc f() {\n" + long + "}\n", "length", ""},
		{"exempt without a reason", "hub/x.go", "package hub\n//lint:long x\nfunc f() {\n" + long + "}\n", "length", "82 lines"},
		{"long test", "hub/x_test.go", "package hub\nfunc f() {\n" + long + "}\n", "length", ""},
		{"long file", "hub/x.go", "package hub\n" + strings.Repeat("\n", 600), "length", "601 lines"},
		{"long generated file", "hub/x.go", "// Code generated by x. DO NOT EDIT.\n\npackage hub\n" + strings.Repeat("\n", 600), "length", ""},
	} {
		r := New("m")
		r.AddSource(c.path, []byte(c.text))
		if r.Files[0].IsGo() && r.Files[0].Syntax == nil {
			t.Fatalf("%s: does not parse", c.name)
		}
		check := func(r *Repo) []Finding { return Ratchet(Long(r), nil) }
		for _, rule := range rules {
			if rule.name == c.rule && c.rule != "length" {
				check = rule.check
			}
		}
		found := check(r)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0].String(), c.want)) {
			t.Errorf("%s: found %v, want %q", c.name, found, c.want)
		}
	}
}

func TestArchitectureRowAndFolder(t *testing.T) {
	r := New("m")
	r.AddSource("ARCHITECTURE.md", []byte("| 2 | `hub` | files |\n"))
	r.AddSource("hub/x.go", []byte("package hub\n"))
	if found := Architecture(r); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

func TestRatchetOnlyTightens(t *testing.T) {
	list := []byte("# comment\n80 a.go F\n600 b.go\n")
	for _, c := range []struct {
		name string
		long map[string]int
		want string
	}{
		{"as listed", map[string]int{"a.go F": 80, "b.go": 600}, ""},
		{"grew", map[string]int{"a.go F": 81, "b.go": 600}, "grew"},
		{"shrank", map[string]int{"a.go F": 75, "b.go": 600}, "write 75"},
		{"gone", map[string]int{"b.go": 600}, "remove its line"},
		{"new", map[string]int{"a.go F": 80, "b.go": 600, "c.go T.G": 71}, "split it"},
	} {
		found := Ratchet(c.long, list)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0].What, c.want)) {
			t.Errorf("%s: %v, want %q", c.name, found, c.want)
		}
	}
	if found := Ratchet(nil, []byte("many a.go\n")); len(found) != 1 {
		t.Errorf("a line without a number: %v", found)
	}
}

func TestLoadMissing(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder without go.mod is no repository")
	}
}
