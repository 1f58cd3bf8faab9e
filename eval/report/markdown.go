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
	head := append([]string{"#", "policy", "score ± s.e.", g.against()}, g.Kinds...)
	head = append(append(head, replayTables{g}.replayHead()...), "KV held", "TTFT", "n")
	if g.Apart != "" {
		fmt.Fprintf(w, "%s\n\n", g.heading())
	}
	if _, err := fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head))); err != nil {
		return err
	}
	for _, s := range g.Series {
		cells := []string{fmt.Sprint(s.Number), "`" + s.Label + "`", "–", "–"}
		if s.Score != nil {
			cells[2] = fmt.Sprintf("%.2f ± %.2f", *s.Score, s.StdErr)
		}
		if d := s.Diff; d != nil {
			cells[3] = d.String()
		}
		for _, kind := range g.Kinds {
			cell := "–"
			if m, ok := s.Groups[kind]; ok {
				cell = fmt.Sprintf("%.1f", m.Score)
			}
			cells = append(cells, cell)
		}
		ttft := "–"
		if s.TTFT > 0 {
			ttft = fmt.Sprintf("%.2f s", s.TTFT/1000)
		}
		cells = append(append(cells, replayTables{g}.replayCells(s)...), bytesText(total(s.KVHeld)), ttft, fmt.Sprint(s.N))
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")); err != nil {
			return err
		}
	}
	for _, n := range g.Notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	return nil
}
