package policy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
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
		path, first string
		row         func(Info) []string
		head        []string
	}{
		{"README.md", "", summaryRow, []string{"policy", "acts", "what it does", "paper"}},
		{"docs/policies.md", sharedNames(Infos()), parameterRow, []string{"policy", "parameters with defaults", "other names"}},
	} {
		path := filepath.Join("..", filepath.FromSlash(page.path))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := page.first + tableOf(page.head, page.row, Infos())
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

// sharedNames is the line above the table of parameters: the other names that several policies have for the same parameter.
func sharedNames(infos []Info) string {
	var names []string
	for name := range shared(infos) {
		names = append(names, name)
	}
	sort.Strings(names)
	return "Everywhere: " + strings.Join(names, ", ") + ".\n\n"
}

// shared counts the other names that at least three policies have, with what they stand for.
func shared(infos []Info) map[string]int {
	count := map[string]int{}
	for _, i := range infos {
		for _, p := range i.Params {
			for _, a := range p.Aliases {
				count[otherName(a, p.Name)]++
			}
		}
	}
	for name, n := range count {
		if n < 3 {
			delete(count, name)
		}
	}
	return count
}

func otherName(alias, name string) string { return fmt.Sprintf("`%s` = `%s`", alias, name) }

func parameterRow(i Info) []string {
	var params, names []string
	everywhere := shared(Infos())
	if i.Wraps != "" {
		params = append(params, "`"+i.innerKey()+"="+i.Wraps+"`")
	}
	for _, p := range i.Params {
		params = append(params, "`"+strings.TrimSuffix(p.Name+"="+p.Default, "=")+"`")
		for _, a := range p.Aliases {
			if name := otherName(a, p.Name); everywhere[name] == 0 {
				names = append(names, name)
			}
		}
	}
	for _, a := range i.Aliases {
		names = append(names, otherName(a, i.Name))
	}
	for _, s := range i.Systems {
		names = append(names, fmt.Sprintf("`%s` = `%s`", s.Name, s.Spec(i.Name)))
	}
	return []string{"`" + i.Name + "`", strings.Join(params, " "), strings.Join(names, ", ")}
}
