package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	slugDropped    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinksOfDocuments: every link in a Markdown file to a place in this repository leads somewhere.
func TestLinksOfDocuments(t *testing.T) {
	r, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, f := range r.Files {
		if path.Ext(f.Path) != ".md" {
			continue
		}
		for _, m := range linkPattern.FindAllStringSubmatch(string(f.Source), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			if what := brokenLink(root, f.Path, m[1]); what != "" {
				t.Errorf("%s: link %s: %s", f.Path, m[1], what)
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links found", links)
	}
}

// brokenLink says what is wrong with a link of a page; empty where it leads somewhere.
func brokenLink(root, page, link string) string {
	target, anchor, _ := strings.Cut(link, "#")
	to := page
	if target != "" {
		to = path.Join(path.Dir(page), target)
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(to)))
	if err != nil {
		return "there is no such file"
	}
	if anchor == "" {
		return ""
	}
	for _, h := range headingPattern.FindAllStringSubmatch(string(text), -1) {
		if slug(h[1]) == anchor {
			return ""
		}
	}
	return "no heading of that name"
}

// slug is a heading's anchor, as code hosts make it.
func slug(heading string) string {
	return strings.ReplaceAll(slugDropped.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func TestBrokenLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte("# One, and `two`\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, broken := range map[string]bool{"a.md": false, "a.md#one-and-two": false, "#one-and-two": false, "b.md": true, "a.md#three": true, "docs/a.md": true} {
		if got := brokenLink(dir, "a.md", link); (got != "") != broken {
			t.Errorf("%s: %q", link, got)
		}
	}
}

var (
	citePattern    = regexp.MustCompile(`algorithms\.md[,;)]? *\(?(\d+(?:\.\d+)?(?:(?:,| and| to|, and) \d+(?:\.\d+)?)*)`)
	numberPattern  = regexp.MustCompile(`\d+(?:\.\d+)?`)
	sectionPattern = regexp.MustCompile(`(?m)^(?:## (\d+)\.|### (\d+\.\d+(?:, (?:[A-Za-z ]+, )?\d+\.\d+)*)|\| (\d+\.\d+(?:, \d+\.\d+)*) \|)`)
	lineOfComment  = regexp.MustCompile(`\n\s*//`)
)

// TestSectionsOfAlgorithms: every section of docs/algorithms.md that a comment cites is there.
func TestSectionsOfAlgorithms(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "algorithms.md"))
	if err != nil {
		t.Fatal(err)
	}
	have := sections(string(text))
	r, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	cited := 0
	for _, f := range r.Files {
		if !f.IsGo() || strings.HasPrefix(f.Path, "internal/lint/") {
			continue
		}
		for _, n := range citations(string(f.Source)) {
			cited++
			if !have[n] {
				t.Errorf("%s: algorithms.md %s is cited and not there", f.Path, n)
			}
		}
	}
	if cited < 20 {
		t.Errorf("only %d citations found", cited)
	}
}

// sections are the numbers of the headings, and of the rows of tables that begin with one.
func sections(text string) map[string]bool {
	have := map[string]bool{}
	for _, m := range sectionPattern.FindAllString(text, -1) {
		for _, n := range numberPattern.FindAllString(m, -1) {
			have[n] = true
		}
	}
	return have
}

// citations are the section numbers that comments of a source name.
func citations(source string) (out []string) {
	for _, m := range citePattern.FindAllStringSubmatch(lineOfComment.ReplaceAllString(source, ""), -1) {
		out = append(out, numberPattern.FindAllString(m[1], -1)...)
	}
	return out
}

func TestCitations(t *testing.T) {
	source := "// as algorithms.md 5.4 reads it (algorithms.md 2.2 and 5.6), in algorithms.md\n\t// 5.7: all (algorithms.md (5.2 to 5.6)) and algorithms.md, 1.\n"
	if got := strings.Join(citations(source), " "); got != "5.4 2.2 5.6 5.7 5.2 5.6 1" {
		t.Errorf("citations: %s", got)
	}
	have := sections("## 3. Three\n### 5.7 Seven\n### 5.11, 5.13 Keeping\n### 5.10 LRU, 5.12 X\n| 7.5, 7.6 | what |\n")
	for _, n := range []string{"3", "5.7", "5.11", "5.13", "5.10", "7.5", "7.6"} {
		if !have[n] {
			t.Errorf("section %s is not found", n)
		}
	}
	if have["4"] || have["5.8"] {
		t.Error("a section that is not there is found")
	}
}
