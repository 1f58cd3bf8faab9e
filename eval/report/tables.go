package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"terrace/eval"
)

// tables are a group's, as rows of text.
type tables struct{ *Group }

// table is the group's: score, kinds of tasks, what is held and read, time. none stands where a series has no value; a column of which
// none has any is left out.
func (g tables) table(none string) (head []string, rows [][]string) {
	read, ttft := g.has(func(s *Series) bool { return s.KVRead > 0 }), g.has(func(s *Series) bool { return s.TTFT > 0 })
	head = append([]string{"#", "policy", "score ± s.e.", g.against()}, g.Kinds...)
	head = append(append(head, replayTables(g).replayHead()...), "KV held")
	if read {
		head = append(head, "KV read a step")
	}
	if ttft {
		head = append(head, "TTFT")
	}
	head = append(head, "n")
	for _, s := range g.Series {
		cells := []string{fmt.Sprint(s.Number), s.Label, none, none}
		if s.Score != nil {
			cells[2] = fmt.Sprintf("%.2f ± %.2f", *s.Score, s.StdErr)
		}
		if d := s.Diff; d != nil {
			cells[3] = d.String()
		}
		for _, kind := range g.Kinds {
			cell := none
			if m, ok := s.Groups[kind]; ok {
				cell = fmt.Sprintf("%.1f", m.Score)
			}
			cells = append(cells, cell)
		}
		cells = append(append(cells, replayTables(g).replayCells(s)...), bytesText(total(s.KVHeld)))
		if read {
			cell := none
			if s.KVRead > 0 {
				cell = bytesText(int64(s.KVRead))
			}
			cells = append(cells, cell)
		}
		if ttft {
			cell := none
			if s.TTFT > 0 {
				cell = fmt.Sprintf("%.2f s", s.TTFT/1000)
			}
			cells = append(cells, cell)
		}
		rows = append(rows, append(cells, fmt.Sprint(s.N)))
	}
	return head, rows
}

// taskTable has a row a task and a column a series, by its policy.
func (g tables) taskTable(none string) (head []string, rows [][]string) {
	head = []string{"task"}
	for _, s := range g.Series {
		head = append(head, s.Label)
	}
	for _, task := range g.Tasks {
		row := []string{task}
		for _, s := range g.Series {
			cell := none
			if t, ok := s.Tasks[task]; ok {
				cell = fmt.Sprintf("%.2f ± %.2f", t.Score.Score, t.StdErr)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return head, rows
}

func (g tables) has(value func(s *Series) bool) bool { return slices.ContainsFunc(g.Series, value) }

// WriteCSV prints a line a policy and task, and one a policy for all tasks (an empty task): scores with their standard errors, bytes held and
// read, times in ms, and where they come from. Numbers are not rounded; what was not measured is empty.
func (c *Comparison) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	line := func(cells ...any) {
		row := make([]string, len(cells))
		for i, x := range cells {
			switch v := x.(type) {
			case float64:
				row[i] = strconv.FormatFloat(v, 'g', -1, 64)
			case nil:
			default:
				row[i] = fmt.Sprint(v)
			}
		}
		_ = out.Write(row) // Error has it
	}
	line("suite", "settings", "run", "model", "policy", "task", "metric", "score", "stderr", "diff", "diff_low", "diff_high", "n", "failed", "kv_held_bytes", "kv_read_bytes", "ttft_ms", "itl_ms", "source")
	for _, g := range c.Groups {
		for _, s := range g.Series {
			var score, diff, low, high any
			if s.Score != nil {
				score = *s.Score
			}
			if d := s.Diff; d != nil {
				diff, low, high = d.Diff, d.Low, d.High
			}
			line(g.Suite, g.Apart, s.Run, s.Model, s.Policy, "", g.Metric.Name, score, s.StdErr, diff, low, high, s.N, s.Failed, total(s.KVHeld), some(s.KVRead), some(s.TTFT), some(s.ITL), s.source())
			for _, task := range g.Tasks {
				if t, ok := s.Tasks[task]; ok {
					line(g.Suite, g.Apart, s.Run, s.Model, s.Policy, task, t.Metric.Name, t.Score.Score, t.StdErr, nil, nil, nil, t.N, t.Failed, total(t.KVHeld), some(t.KVRead), some(t.TTFT), some(t.ITL), s.source())
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}

// some is a number that was measured, nil where it was not.
func some(v float64) any {
	if v == 0 {
		return nil
	}
	return v
}

// source says where a series' times come from.
func (s *Series) source() string {
	if s.Replay != nil && s.Replay.Source != "" {
		return s.Replay.Source
	}
	if slices.ContainsFunc(s.outcomes, func(o eval.Outcome) bool { return o.Modelled }) {
		return "modelled"
	}
	return "measured"
}

// WriteLaTeX prints each group as a table of the package booktabs, and one of tasks where there are several.
func (c *Comparison) WriteLaTeX(w io.Writer) error {
	for _, g := range c.Groups {
		fmt.Fprintf(w, "%% %s: %s\n", latexText(g.heading()), latexText(unit(g.Metric)))
		head, rows := tables{g}.table("--")
		if err := latexTable(w, head, rows); err != nil {
			return err
		}
		if head, rows = (tables{g}).taskTable("--"); len(rows) > 1 {
			if err := latexTable(w, head, rows); err != nil {
				return err
			}
		}
		for _, n := range g.Notes {
			fmt.Fprintf(w, "%% %s\n", latexText(n))
		}
	}
	return nil
}

func latexTable(w io.Writer, head []string, rows [][]string) error {
	row := func(cells []string) string {
		out := make([]string, len(cells))
		for i, c := range cells {
			out[i] = latexText(c)
		}
		return strings.Join(out, " & ") + ` \\`
	}
	fmt.Fprintf(w, "\\begin{tabular}{l%s}\n\\toprule\n%s\n\\midrule\n", strings.Repeat("r", len(head)-1), row(head))
	for _, r := range rows {
		fmt.Fprintln(w, row(r))
	}
	_, err := fmt.Fprint(w, "\\bottomrule\n\\end{tabular}\n")
	return err
}

var latexEscapes = strings.NewReplacer(`\`, `\textbackslash{}`, "&", `\&`, "%", `\%`, "$", `\$`, "#", `\#`, "_", `\_`, "{", `\{`, "}", `\}`, "~", `\textasciitilde{}`, "^", `\textasciicircum{}`,
	"±", `$\pm$`, "×", `$\times$`, "…", `\dots{}`, "–", "--", "·", `$\cdot$`, "\n", " ")

func latexText(s string) string { return latexEscapes.Replace(s) }
