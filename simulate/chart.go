package simulate

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

// Charts of the page, as SVG of 360 units' width, so that a phone shows their text as large as its own. Blue is modelled, green
// measured, grey a closed form; dark is the paper's. Rows over one number are lines, all others bars.

const (
	chartWidth = 360
	barHeight  = 34
	barsShown  = 20
	linesMost  = 6
)

// chart is the rows of one metric.
type chart struct {
	Metric, Unit string
	SVG          template.HTML // of numbers and escaped text alone
	Left         int           // rows that are in results.json only
}

// charts are the rows by metric, those that a paper prints first.
func charts(rows []Row) (out []chart) {
	var metrics []string
	by := map[string][]Row{}
	if svg := stacked(rows); svg != "" {
		out = append(out, chart{Metric: "by part", Unit: "s", SVG: svg})
	}
	for _, r := range rows {
		if _, ok := partOf(r); ok {
			continue
		}
		key := r.Metric + "\x00" + r.Unit
		if by[key] == nil {
			metrics = append(metrics, key)
		}
		by[key] = append(by[key], r)
	}
	for _, key := range metrics {
		list := by[key]
		c := chart{Metric: list[0].Metric, Unit: list[0].Unit}
		if along := lineKey(list); along != "" {
			c.SVG = lines(list, along)
		} else {
			slices.SortStableFunc(list, func(a, b Row) int { return rank(a) - rank(b) })
			if len(list) > barsShown {
				c.Left, list = len(list)-barsShown, list[:barsShown]
			}
			c.SVG = bars(list)
		}
		out = append(out, c)
	}
	return out
}

// rank puts what is compared first.
func rank(r Row) int {
	switch {
	case r.Paper != nil:
		return 0
	case r.Source == Measured:
		return 1
	}
	return 2
}

// lineKey is the number that rows run over: the one key of x that varies within a series, with four values or more; "" for bars.
func lineKey(rows []Row) string {
	series, values := map[string]map[string]bool{}, map[string]map[any]bool{}
	for _, r := range rows {
		if len(r.X) != len(rows[0].X) {
			return ""
		}
		if series[r.Series] == nil {
			series[r.Series] = map[string]bool{}
		}
		for k, v := range r.X {
			if values[k] == nil {
				values[k] = map[any]bool{}
			}
			values[k][v] = true
		}
	}
	along := ""
	for k, v := range values {
		if len(v) == 1 {
			continue
		}
		if _, ok := rows[0].X[k].(float64); !ok || len(v) < 4 || along != "" {
			return ""
		}
		along = k
	}
	if len(series) > linesMost {
		return ""
	}
	return along
}

func colour(r Row) string {
	switch {
	case r.Source == Measured:
		return "#2e8b57"
	case r.Kind == ClosedForm:
		return "#a9b4bf"
	}
	return "#3b7dd8"
}

func bars(list []Row) template.HTML {
	most := 0.0
	for _, r := range list {
		most = max(most, math.Abs(r.Value))
		if r.Paper != nil {
			most = max(most, math.Abs(*r.Paper))
		}
		if r.High != nil {
			most = max(most, *r.High)
		}
	}
	at := func(v float64) float64 { return (chartWidth - 6) * math.Abs(v) / max(most, 1e-300) }
	var s strings.Builder
	fmt.Fprintf(&s, `<svg viewBox="0 0 %d %d" role="img">`, chartWidth, len(list)*barHeight)
	for i, r := range list {
		y, value := i*barHeight, fmt.Sprintf("%.4g", r.Value)
		if r.Paper != nil {
			value += fmt.Sprintf(", paper %.4g", *r.Paper)
		}
		label := strings.TrimSpace(r.Series + " " + labelOf(r.X))
		if r.Source == Measured {
			value += " measured"
		}
		text(&s, 0, y+12, short(label, 58-len(value)), value, label)
		fmt.Fprintf(&s, `<rect x="0" y="%d" width="%.1f" height="9" fill="%s"/>`, y+17, at(r.Value), colour(r))
		if r.Low != nil {
			fmt.Fprintf(&s, `<rect x="%.1f" y="%d" width="%.1f" height="2" fill="#1c2733"/>`, at(*r.Low), y+28, at(*r.High)-at(*r.Low))
		}
		if r.Paper != nil {
			fmt.Fprintf(&s, `<rect x="%.1f" y="%d" width="3" height="13" fill="#1c2733"/>`, at(*r.Paper), y+15)
		}
	}
	s.WriteString("</svg>")
	return template.HTML(s.String())
}

// text writes a label and a bold value, with the whole label as what a pointer shows.
func text(s *strings.Builder, x, y int, label, value, whole string) {
	fmt.Fprintf(s, `<text x="%d" y="%d"><title>%s</title>%s <tspan font-weight="600">%s</tspan></text>`, x, y, template.HTMLEscapeString(whole), template.HTMLEscapeString(label), template.HTMLEscapeString(value))
}

// brief is a number on an axis.
func brief(v float64) string {
	for _, s := range []struct {
		unit float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= 10*s.unit || v >= s.unit && s.unit > 1e3 {
			return fmt.Sprintf("%.3g%s", v/s.unit, s.name)
		}
	}
	return fmt.Sprintf("%.3g", v)
}

// short cuts a label to n characters.
func short(label string, n int) string {
	if r := []rune(label); len(r) > max(n, 12) {
		return string(r[:max(n, 12)-1]) + "…"
	}
	return label
}

// dashes tell the series of a chart apart.
var dashes = [linesMost]string{"", "6 3", "2 3", "9 3 2 3", "1 5", "12 4"}

func lines(rows []Row, along string) template.HTML {
	const high, left, bottom = 170, 46, 18
	by := map[string][]Row{}
	lo, hi, most := math.Inf(1), math.Inf(-1), 0.0
	for _, r := range rows {
		by[r.Series] = append(by[r.Series], r)
		x := r.X[along].(float64)
		lo, hi, most = min(lo, x), max(hi, x), max(most, r.Value)
		if r.Paper != nil {
			most = max(most, *r.Paper)
		}
	}
	log := lo > 0 && hi > 8*lo
	scale := func(x float64) float64 {
		if log {
			return (math.Log(x) - math.Log(lo)) / (math.Log(hi) - math.Log(lo))
		}
		return (x - lo) / max(hi-lo, 1e-300)
	}
	px := func(x float64) float64 { return left + (chartWidth-left-12)*scale(x) }
	py := func(v float64) float64 { return 8 + (high-8-bottom)*(1-v/max(most, 1e-300)) }
	names := make([]string, 0, len(by))
	for n := range by {
		names = append(names, n)
	}
	slices.Sort(names)
	var s strings.Builder
	fmt.Fprintf(&s, `<svg viewBox="0 0 %d %d" role="img">`, chartWidth, high+18+16*len(names))
	for _, f := range []float64{0, 0.5, 1} {
		fmt.Fprintf(&s, `<path d="M%d %.1fH%d" stroke="#d8dfe6"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, py(f*most), chartWidth-8, left-4, py(f*most)+4, brief(f*most))
	}
	fmt.Fprintf(&s, `<text x="%d" y="%d">%.5g</text><text x="%d" y="%d" text-anchor="end">%s %.5g</text>`, left, high+2, lo, chartWidth-4, high+2, template.HTMLEscapeString(along), hi)
	for i, n := range names {
		list := by[n]
		slices.SortFunc(list, func(a, b Row) int {
			if a.X[along].(float64) < b.X[along].(float64) {
				return -1
			}
			return 1
		})
		var d strings.Builder
		for j, r := range list {
			fmt.Fprintf(&d, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[j == 0], px(r.X[along].(float64)), py(r.Value))
		}
		fmt.Fprintf(&s, `<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, d.String(), colour(list[0]), dashes[i])
		for _, r := range list {
			x := px(r.X[along].(float64))
			if r.Low != nil {
				fmt.Fprintf(&s, `<path d="M%.1f %.1fV%.1f" stroke="#1c2733"/>`, x, py(*r.Low), py(min(*r.High, most)))
			}
			if r.Paper != nil {
				fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="4" fill="#1c2733"/>`, x, py(*r.Paper))
			}
		}
		y, last := high+18+16*i, list[len(list)-1]
		fmt.Fprintf(&s, `<path d="M0 %dH30" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, y-4, colour(list[0]), dashes[i])
		text(&s, 36, y, short(n, 36), fmt.Sprintf("%.4g at %.5g", last.Value, last.X[along]), n)
	}
	s.WriteString("</svg>")
	return template.HTML(s.String())
}

func labelOf(x map[string]any) string {
	var parts []string
	for k, v := range x {
		if s, ok := v.(string); ok {
			parts = append(parts, s)
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %.4g", k, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
