package report

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"terrace/eval"
	"terrace/internal/units"
)

// WriteText prints each group as a table of series, and one of tasks by series where there are several tasks.
func (c *Comparison) WriteText(w io.Writer) error {
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
	fmt.Fprintf(w, "%s: %s\n", g.Suite, unit(g.Metric))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "#\tseries\tscore\t± s.e.\tagainst full (95 %)\tTTFT ms\tITL ms\tKV held\tKV peak\tn\tfailed\t")
	for _, s := range g.Series {
		score, diff := "-", "-"
		if s.Score != nil {
			score = fmt.Sprintf("%.2f", *s.Score)
		}
		if d := s.Diff; d != nil {
			diff = fmt.Sprintf("%+.2f (%+.2f … %+.2f)", d.Diff, d.Low, d.High)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%.2f\t%s\t%.0f\t%.1f\t%s\t%s\t%d\t%d\t\n", s.Number, s.Label, score, s.StdErr, diff, s.TTFT, s.ITL, bytesText(total(s.KVHeld)), bytesText(total(s.KVMean)), s.N, s.Failed)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(g.Kinds) > 0 {
		err := g.writeScores(w, "scores by kind of task and series number:", g.Kinds, func(s *Series, kind string) (float64, bool) {
			m, ok := s.Groups[kind]
			return m.Score, ok
		})
		if err != nil {
			return err
		}
	}
	if len(g.Tasks) < 2 {
		return nil
	}
	return g.writeScores(w, "scores by task and series number:", g.Tasks, func(s *Series, task string) (float64, bool) {
		t, ok := s.Tasks[task]
		return t.Score.Score, ok
	})
}

// writeScores prints a row a name and a column a series.
func (g *Group) writeScores(w io.Writer, title string, names []string, score func(s *Series, name string) (float64, bool)) error {
	fmt.Fprintln(w, "\n"+title)
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
				fmt.Fprintf(t, "%.2f\t", v)
			} else {
				fmt.Fprint(t, "-\t")
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
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
