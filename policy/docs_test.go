package policy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A table between these lines of a page is made from the registry; `go test ./policy -rewrite` writes it.
const (
	tableBegins = "<!-- policies: made by go test ./policy -rewrite -->\n"
	tableEnds   = "<!-- end of policies -->\n"
)

// TestTablesOfPages: README and docs/policies.md show what `infer policies --json` says.
func TestTablesOfPages(t *testing.T) {
	for _, page := range []struct {
		path string
		row  func(Info) []string
		head []string
	}{
		{"README.md", summaryRow, []string{"policy", "acts", "what it does", "paper"}},
		{"docs/policies.md", parameterRow, []string{"policy", "parameters with defaults"}},
	} {
		path := filepath.Join("..", filepath.FromSlash(page.path))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := tableOf(page.head, page.row, Infos())
		got, replaced, err := replaceTable(string(text), want)
		switch {
		case err != nil:
			t.Errorf("%s: %v", page.path, err)
		case got == want:
		case rewriting():
			if err := os.WriteFile(path, []byte(replaced), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s: the table of policies is not the registry's: run 'go test ./policy -rewrite' and read the diff\ngot:\n%s\nwant:\n%s", page.path, got, want)
		}
	}
}

// TestCountOfPolicies: README counts what there is beside full and the oracle.
func TestCountOfPolicies(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, i := range Infos() {
		if i.Name != "full" && i.Name != "oracle" {
			n++
		}
	}
	if want := fmt.Sprintf(" %d KV policies", n); !strings.Contains(string(text), want) {
		t.Errorf("README.md: want%s", want)
	}
}

// TestPoliciesHavePages: docs/policies.md says of each policy when to use it.
func TestPoliciesHavePages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "policies.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range Infos() {
		if !strings.Contains(string(text), "\n**`"+i.Name+"`**") {
			t.Errorf("docs/policies.md: no paragraph of %s: begin one with **`%s`**", i.Name, i.Name)
		}
	}
}

func TestReplaceTable(t *testing.T) {
	info := Info{Name: "a", Phase: PhaseRead, Summary: "reads x|y", Paper: "A, arXiv 1234.56789"}
	want := tableOf([]string{"policy", "acts", "what it does", "paper"}, summaryRow, []Info{info})
	if !strings.HasSuffix(want, "| `a` | read | reads x\\|y | https://arxiv.org/abs/1234.56789 |\n") {
		t.Errorf("table:\n%s", want)
	}
	got, replaced, err := replaceTable("before\n"+tableBegins+"old\n"+tableEnds+"after\n", want)
	if err != nil || got != "old\n" || replaced != "before\n"+tableBegins+want+tableEnds+"after\n" {
		t.Errorf("got %q, %q, %v", got, replaced, err)
	}
	for _, bad := range []string{"", tableBegins, tableEnds + tableBegins} {
		if _, _, err := replaceTable(bad, want); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// rewriting reports whether the tests run with -rewrite, which datadriven declares.
func rewriting() bool {
	f := flag.Lookup("rewrite")
	return f != nil && f.Value.String() == "true"
}

// replaceTable gives the table of a page and the page with another one in its place.
func replaceTable(page, table string) (got, replaced string, err error) {
	before, rest, ok := strings.Cut(page, tableBegins)
	got, after, closed := strings.Cut(rest, tableEnds)
	if !ok || !closed {
		return "", "", fmt.Errorf("want a table between the lines %q and %q", strings.TrimSpace(tableBegins), strings.TrimSpace(tableEnds))
	}
	return got, before + tableBegins + table + tableEnds + after, nil
}

func tableOf(head []string, row func(Info) []string, infos []Info) string {
	var b strings.Builder
	line := func(cells []string) {
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", "\\|")
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	line(append([]string(nil), head...))
	b.WriteString(strings.Repeat("| --- ", len(head)) + "|\n")
	for _, i := range infos {
		line(row(i))
	}
	return b.String()
}

var arxiv = regexp.MustCompile(`arXiv (\d{4}\.\d{5})`)

func summaryRow(i Info) []string {
	paper := ""
	if m := arxiv.FindStringSubmatch(i.Paper); m != nil {
		paper = "https://arxiv.org/abs/" + m[1]
	}
	return []string{"`" + i.Name + "`", string(i.Phase), i.Summary, paper}
}

// parameterRow leaves out the ratio beside a budget, which the page explains once, and other names, which infer policies tells.
func parameterRow(i Info) []string {
	var params []string
	if i.Wraps != "" {
		params = append(params, "`"+i.innerKey()+"="+i.Wraps+"`")
	}
	budget := slices.ContainsFunc(i.Params, func(p Param) bool { return p.Name == "budget" })
	for _, p := range i.Params {
		if p.Name != "ratio" || !budget {
			params = append(params, "`"+strings.TrimSuffix(p.Name+"="+p.Default, "=")+"`")
		}
	}
	return []string{"`" + i.Name + "`", strings.Join(params, " ")}
}
