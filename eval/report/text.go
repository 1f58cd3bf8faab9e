package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"terrace/eval"
	"terrace/internal/units"
)

// WriteText prints each group as a table of series, and one of tasks by series where there are several tasks.
func (c *Comparison) WriteText(w io.Writer) error {
	if n := c.apartNotice(); n != "" {
		fmt.Fprintf(w, "%s\n\n", n)
	}
	for i, g := range c.Groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := g.writeText(w); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) writeText(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\n", g.heading(), unit(g.Metric))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := tables{g}.columns()
	for _, c := range columns {
		fmt.Fprint(t, c.head+"\t")
	}
	fmt.Fprintln(t)
	for _, s := range g.Series {
		for _, c := range columns {
			fmt.Fprint(t, c.cell(s)+"\t")
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range g.Notes {
		fmt.Fprintln(w, "note: "+n)
	}
	return errors.Join(
		replayTables{g}.writeReplays(w),
		replayTables{g}.writeConfigs(w),
		replayTables{g}.writeRates(w),
		g.writeScores(w, "by kind of task", g.Kinds, func(s *Series, kind string) (float64, bool) { m, ok := s.Groups[kind]; return m.Score, ok }),
		g.writeScores(w, "by length of sample", g.Lengths, func(s *Series, l string) (float64, bool) { m, ok := s.Length[l]; return m.Score, ok }),
		g.writeScores(w, "further measures", g.Measures, func(s *Series, name string) (float64, bool) { v, ok := s.Values[name]; return v, ok }),
		g.writeDiffs(w),
		g.writeScores(w, "scores by task", severalOf(g.Tasks), func(s *Series, task string) (float64, bool) { t, ok := s.Tasks[task]; return t.Score.Score, ok }),
	)
}

// column is one of the text's table.
type column struct {
	head string
	cell func(s *Series) string
}

// columns are those of the text's table; what no series has measured is left out.
func (g tables) columns() []column {
	number := func(format string, of func(s *Series) float64) func(s *Series) string {
		return func(s *Series) string { return fmt.Sprintf(format, of(s)) }
	}
	ttft, itl := func(s *Series) float64 { return s.TTFT }, func(s *Series) float64 { return s.ITL }
	list := []column{
		{"#", func(s *Series) string { return strconv.Itoa(s.Number) }},
		{"series", func(s *Series) string { return s.Label }},
		{"score", func(s *Series) string {
			if s.Score == nil {
				return "-"
			}
			return fmt.Sprintf("%.2f", *s.Score)
		}},
		{"± s.e.", number("%.2f", func(s *Series) float64 { return s.StdErr })},
		{g.against(), func(s *Series) string {
			if s.Diff == nil {
				return "-"
			}
			return s.Diff.String()
		}},
	}
	if g.has(func(s *Series) bool { return s.TTFT > 0 }) {
		list = append(list, column{"TTFT ms", number("%.0f", ttft)})
	}
	if g.has(func(s *Series) bool { return s.ITL > 0 }) {
		list = append(list, column{"ITL ms", number("%.1f", itl)})
	}
	list = append(list, column{"KV held", func(s *Series) string { return bytesText(total(s.KVHeld)) }})
	if g.has(func(s *Series) bool { return s.KVRead > 0 }) {
		list = append(list, column{"KV read", func(s *Series) string { return bytesText(int64(s.KVRead)) }})
	}
	return append(list, column{"KV peak", func(s *Series) string { return bytesText(total(s.KVMean)) }},
		column{"n", func(s *Series) string { return strconv.Itoa(s.N) }}, column{"failed", func(s *Series) string { return strconv.Itoa(s.Failed) }})
}

// against heads the column of differences. Those of perplexities are factors, so that the column is in the scores' unit.
func (g *Group) against() string {
	if g.Metric.Kind == eval.Perplexity {
		return "ppl / that of " + g.Against + " (95 %)"
	}
	return "against " + g.Against + " (95 %)"
}

// severalOf is nil for a list of one: its scores are those of the series.
func severalOf(names []string) []string {
	if len(names) < 2 {
		return nil
	}
	return names
}

// writeScores prints a row a name and a column a series.
func (g *Group) writeScores(w io.Writer, title string, names []string, score func(s *Series, name string) (float64, bool)) error {
	if len(names) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%s and series number:\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\t")
	for _, s := range g.Series {
		fmt.Fprintf(t, "%d\t", s.Number)
	}
	fmt.Fprintln(t)
	for _, name := range names {
		fmt.Fprintf(t, "%s\t", name)
		for _, s := range g.Series {
			if v, ok := score(s, name); ok {
				fmt.Fprintf(t, "%s\t", fixed2(v))
			} else {
				fmt.Fprint(t, "-\t")
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// writeDiffs prints the differences of further measures, a row a series.
func (g *Group) writeDiffs(w io.Writer) error {
	if !slices.ContainsFunc(g.Series, func(s *Series) bool { return len(s.ValueDiffs) > 0 }) {
		return nil
	}
	fmt.Fprintf(w, "\nfurther measures less those of %s (95 %%) and series number:\n", g.Against)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\t"+strings.Join(g.Measures, "\t")+"\t")
	for _, s := range g.Series {
		if len(s.ValueDiffs) == 0 {
			continue
		}
		fmt.Fprintf(t, "%d\t", s.Number)
		for _, name := range g.Measures {
			if d := s.ValueDiffs[name]; d != nil {
				fmt.Fprintf(t, "%s\t", d)
			} else {
				fmt.Fprint(t, "-\t")
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// String is the difference with its interval.
func (d *Interval) String() string {
	if d.nats {
		return fmt.Sprintf("×%.3f (×%.3f … ×%.3f)", math.Exp(d.Diff), math.Exp(d.Low), math.Exp(d.High))
	}
	format := "%+.2f (%+.2f … %+.2f)"
	if most := max(math.Abs(d.Low), math.Abs(d.High)); most > 0 && most < 0.1 {
		format = "%+.4f (%+.4f … %+.4f)"
	}
	return fmt.Sprintf(format, d.Diff, d.Low, d.High)
}

// fixed2 has two decimals, or three digits where those would hide a small number.
func fixed2(v float64) string {
	if v != 0 && math.Abs(v) < 0.1 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// WriteJSON prints the comparison as one object.
func (c *Comparison) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(c)
}

// unit says what a metric's scores are.
func unit(m eval.Metric) string {
	switch m.Kind {
	case eval.Perplexity:
		return m.Name + " (less is better)"
	case "plain":
		return m.Name
	case eval.Nats:
		return m.Name + ", nats (less is better)"
	}
	return m.Name + ", %"
}

func bytesText(n int64) string {
	if n == 0 {
		return "-"
	}
	return units.FormatBytes(n)
}
