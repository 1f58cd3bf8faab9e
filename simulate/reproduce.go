package simulate

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

// Results is what `infer reproduce` writes beside its page.
type Results struct {
	Experiments []*Result `json:"experiments"`
}

// Reproduce answers experiments by ID; none means all. Errors wrap ErrArgument.
func Reproduce(ids []string) (*Results, error) {
	if len(ids) == 0 {
		for _, l := range List() {
			ids = append(ids, l.ID)
		}
	}
	out := &Results{}
	for _, id := range ids {
		r, err := Run(id, nil)
		if err != nil {
			return nil, err
		}
		out.Experiments = append(out.Experiments, r)
	}
	return out, nil
}

// WriteJSON writes every row.
func (r *Results) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

//go:embed data/page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// shown is one experiment on the page.
type shown struct {
	ID, Title string
	Charts    []chart
	Result    *Result
}

// chart is the bars of one metric.
type chart struct {
	Metric, Unit string
	Height       int
	Bars         []bar
	Left         int // rows that are in results.json only
}

// bar is one row: its length and, where the paper prints a value, where that lies, in units of the chart (500 is the longest).
type bar struct {
	Y                int
	Label, Value     string
	Width, Paper     float64
	Low, Spread      float64
	HasPaper, Banded bool
	Kind             Kind
	Reason           string
}

const (
	barHeight = 34
	longest   = 500
	barsShown = 24
)

// WriteHTML writes one page that loads nothing.
func (r *Results) WriteHTML(w io.Writer) error {
	var list []shown
	for _, e := range r.Experiments {
		list = append(list, shown{ID: e.ID, Title: find(e.ID).title, Charts: charts(e.Rows), Result: e})
	}
	return page.Execute(w, list)
}

// charts are the rows by metric, those that a paper prints first.
func charts(rows []Row) (out []chart) {
	var metrics []string
	by := map[string][]Row{}
	for _, r := range rows {
		key := r.Metric + "\x00" + r.Unit
		if by[key] == nil {
			metrics = append(metrics, key)
		}
		by[key] = append(by[key], r)
	}
	for _, key := range metrics {
		list := by[key]
		slices.SortStableFunc(list, func(a, b Row) int {
			switch {
			case a.Paper != nil && b.Paper == nil:
				return -1
			case a.Paper == nil && b.Paper != nil:
				return 1
			}
			return 0
		})
		c := chart{Metric: list[0].Metric, Unit: list[0].Unit}
		if len(list) > barsShown {
			c.Left, list = len(list)-barsShown, list[:barsShown]
		}
		c.draw(list)
		out = append(out, c)
	}
	return out
}

func (c *chart) draw(list []Row) {
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
	at := func(v float64) float64 { return longest * math.Abs(v) / max(most, 1e-300) }
	for i, r := range list {
		b := bar{Y: i * barHeight, Label: strings.TrimSpace(r.Series + " " + labelOf(r.X)), Value: fmt.Sprintf("%.4g", r.Value), Width: at(r.Value), Kind: r.Kind, Reason: r.Reason}
		if r.Paper != nil {
			b.HasPaper, b.Paper = true, at(*r.Paper)
			b.Value += fmt.Sprintf(", paper %.4g", *r.Paper)
		}
		if r.Low != nil {
			b.Banded, b.Low, b.Spread = true, at(*r.Low), at(*r.High)-at(*r.Low)
		}
		c.Bars = append(c.Bars, b)
	}
	c.Height = len(list) * barHeight
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
