package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// plainWidth is how wide text is made where there is no terminal to ask.
const plainWidth = 80

// terminalWidth is the width of the terminal that w is, in columns.
func terminalWidth(w io.Writer) int {
	width, _ := terminalSize(w)
	return width
}

// terminalSize is the width and height of the terminal that w is, in columns and lines; 0 lines = not known.
func terminalSize(w io.Writer) (width, height int) {
	if f, ok := w.(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width, height
		}
	}
	return plainWidth, 0
}

// shortened is s in at most n characters; what is cut is an ellipsis.
func shortened(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:max(n-1, 0)]) + "…"
}

// table writes rows of cells that tabs end, in columns. On a terminal the last column's words go on below where they do not fit its
// width; elsewhere a row is a line, whatever its length.
type table struct {
	*tabwriter.Writer
	rows  bytes.Buffer
	out   io.Writer
	width int // 0: as wide as it gets
}

func (c *console) newTable() *table {
	t := &table{out: c.stdout}
	if c.isTTY(c.stdout) {
		t.width = terminalWidth(c.stdout)
	}
	t.Writer = tabwriter.NewWriter(&t.rows, 0, 0, 2, ' ', 0)
	return t
}

// Flush lays the table out and writes it.
func (t *table) Flush() error {
	if err := t.Writer.Flush(); err != nil {
		return err
	}
	text := visible(t.rows.String(), "\n")
	if t.width > 0 {
		text = fold(text, t.width)
	}
	t.rows.Reset()
	_, err := io.WriteString(t.out, text)
	return err
}

// fold breaks lines that are wider than a terminal between words. What comes below begins where the line's last column does.
func fold(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		indent := lastColumn(line)
		if indent > width*2/3 { // too little room behind the columns
			indent = min(4, width/4)
		}
		for utf8.RuneCountInString(line) > width {
			cut := breakAt(line, width, indent)
			b.WriteString(strings.TrimRight(line[:cut], " ") + "\n")
			line = strings.Repeat(" ", indent) + strings.TrimLeft(line[cut:], " ")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// lastColumn is where the last column of a line begins, in characters: behind the last two spaces.
func lastColumn(line string) int {
	i := strings.LastIndex(line, "  ")
	if i < 0 {
		return 0
	}
	return utf8.RuneCountInString(line[:i+2])
}

// breakAt is where a line is broken, in bytes: behind the last space that is within the width and behind the indent, else at the
// width.
func breakAt(line string, width, indent int) int {
	at, space, n := 0, 0, 0
	for i, r := range line {
		if n > indent && r == ' ' {
			space = i + 1
		}
		if n == width {
			at = i
			break
		}
		n++
	}
	if space > 0 {
		return space
	}
	return at
}

// foldHelp has the text and flags of help folded to the terminal's width.
func (c *console) foldHelp(root *cobra.Command) {
	width := 0
	if c.isTTY(c.stdout) {
		width = terminalWidth(c.stdout)
	}
	cobra.AddTemplateFunc("flagUsages", func(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(width) })
	cobra.AddTemplateFunc("folded", func(text string) string {
		if width > 0 {
			return strings.TrimSuffix(fold(text, width), "\n")
		}
		return text
	})
	root.SetHelpTemplate(strings.Replace(root.HelpTemplate(), "{{. | trimTrailingWhitespaces}}", "{{. | trimTrailingWhitespaces | folded}}", 1))
	root.SetUsageTemplate(strings.NewReplacer(".LocalFlags.FlagUsages", "flagUsages .LocalFlags", ".InheritedFlags.FlagUsages", "flagUsages .InheritedFlags").Replace(root.UsageTemplate()))
}
