package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown prints each group as one table for a README: score, kinds of tasks, what is held, time and uncertainty.
func (c *Comparison) WriteMarkdown(w io.Writer) error {
	if n := c.apartNotice(); n != "" {
		fmt.Fprintf(w, "%s\n\n", n)
	}
	for i, g := range c.Groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := g.writeMarkdown(w); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) writeMarkdown(w io.Writer) error {
	head, rows := tables{g}.table("–")
	if g.Apart != "" {
		fmt.Fprintf(w, "%s\n\n", g.heading())
	}
	if err := markdownTable(w, head, rows, "`"); err != nil {
		return err
	}
	if head, rows = (tables{g}).taskTable("–"); len(rows) > 1 {
		fmt.Fprintln(w)
		if err := markdownTable(w, head, rows, ""); err != nil {
			return err
		}
	}
	for _, n := range g.Notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	return nil
}

// markdownTable prints a table; quote stands around the second column's cells.
func markdownTable(w io.Writer, head []string, rows [][]string, quote string) error {
	if _, err := fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head))); err != nil {
		return err
	}
	for _, row := range rows {
		row[1] = quote + row[1] + quote
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | ")); err != nil {
			return err
		}
	}
	return nil
}
