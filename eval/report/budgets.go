package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"terrace/eval"
)

// budgetChart draws what each series loses against the policy that the group is measured against, with its paired interval, over the share
// of that policy's bytes; the budgets of one method are joined. nil where fewer than two series have both.
func (g charts) budgetChart(title, xLabel string, p BytesPoint) *frontChart {
	type mark struct {
		s     *Series
		share float64
	}
	var marks []mark
	low, high, most := 0.0, 0.0, 0.0
	for _, s := range g.Series {
		base := g.base(s)
		if s.Diff == nil || base == nil || p.bytes(base) <= 0 || p.bytes(s) <= 0 {
			continue
		}
		m := mark{s, 100 * p.bytes(s) / p.bytes(base)}
		marks = append(marks, m)
		low, high, most = min(low, s.Diff.Low), max(high, s.Diff.High), max(most, m.share)
	}
	if len(marks) < 2 {
		return nil
	}
	c := &frontChart{Title: title, XLabel: xLabel, YLabel: "less that of " + g.Against, Width: chartWidth, Height: 300, Left: 46, Right: chartWidth - 16, Top: 14, Low: 256}
	if g.Metric.Kind == eval.Perplexity || g.Metric.Kind == eval.Nats {
		c.YLabel = "nats, " + c.YLabel
	}
	pad := 0.05 * (high - low)
	x, y := niceScale(0, most, c.Left, c.Right, 5), niceScale(low-pad, high+pad, c.Low, c.Top, 5)
	c.XTicks, c.YTicks = x.ticks(), y.ticks()
	styles := g.styles()
	lines := map[string][]point{}
	var order []string
	for _, m := range marks {
		s, st := m.s, styles[m.s.family]
		pt := point{X: x.at(m.share), Y: y.at(s.Diff.Diff), Class: st.class, Title: fmt.Sprintf("%d %s: %s at %s %%", s.Number, s.Label, s.Diff, number(m.share))}
		pt.Path, pt.Bar = marker(st.shape, pt.X, pt.Y, 5), fmt.Sprintf("M%.1f %.1fV%.1f", pt.X, y.at(s.Diff.Low), y.at(s.Diff.High))
		c.Points = append(c.Points, pt)
		name := lineOf(s.Policy)
		if len(s.Between) > 1 {
			name = lineOf(s.Between[0].Policy)
		}
		if s.Model != g.Series[0].Model {
			name = s.Model + " " + name
		}
		if lines[name] == nil {
			order = append(order, name)
		}
		lines[name] = append(lines[name], pt)
	}
	for _, name := range order {
		slices.SortFunc(lines[name], func(a, b point) int { return int(a.X - b.X) })
		path := ""
		for i, p := range lines[name] {
			path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], p.X, p.Y)
		}
		c.Lines = append(c.Lines, stroke{lines[name][0].Class, path})
	}
	c.Front = fmt.Sprintf("M%.1f %.1fH%.1f", c.Left, y.at(0), c.Right)
	c.nameLines(order, lines)
	return c
}

// budgetCharts are over what is held and over what a step reads.
func (g charts) budgetCharts() (out []*frontChart) {
	for _, c := range []*frontChart{
		g.budgetChart("Score and share of the KV held", "KV bytes held, % of "+g.Against+"'s", BytesPoint{}),
		g.budgetChart("Score and share of the KV read", "KV bytes that a step reads, % of "+g.Against+"'s", BytesPoint{Read: true}),
	} {
		if c != nil {
			c.Caption = g.verdict(func(s *Series) *Interval { return s.Diff })
			out = append(out, c)
		}
	}
	return out
}

// verdict says which series are worse than the policy that they are measured against, by their whole 95 % interval, and which are better.
func (g charts) verdict(diff func(s *Series) *Interval) string {
	var worse, better, open []string
	for _, s := range g.Series {
		d := diff(s)
		if d == nil {
			continue
		}
		low, high := d.Low, d.High
		if g.Metric.LessIsBetter() {
			low, high = -high, -low
		}
		n := strconv.Itoa(s.Number)
		switch {
		case high < 0:
			worse = append(worse, n)
		case low > 0:
			better = append(better, n)
		default:
			open = append(open, n)
		}
	}
	if worse == nil && better == nil && open == nil {
		return ""
	}
	text := "Worse than " + g.Against + ": " + numbers(worse)
	if better != nil {
		text += "; better: " + numbers(better)
	}
	if open != nil {
		text += "; not told apart: " + numbers(open)
	}
	return text + "."
}

func numbers(list []string) string {
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}

// diffAmong is a series' difference on some of its samples.
func (g charts) diffAmong(m eval.Metric, keep func(o eval.Outcome) bool) func(s *Series) *Interval {
	some := func(s *Series) []eval.Outcome {
		return slices.DeleteFunc(slices.Clone(s.outcomes), func(o eval.Outcome) bool { return !keep(o) })
	}
	return func(s *Series) *Interval {
		base := g.base(s)
		if base == nil || base == s {
			return nil
		}
		d, _ := difference(some(base), some(s), m)
		return d
	}
}
