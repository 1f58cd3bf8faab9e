package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"sync"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// page is parsed at first use: not at every start of the binary.
var page = sync.OnceValue(parsePage)

func parsePage() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"add": func(a, b float64) float64 { return tenth(a + b) },
		"sub": func(a, b float64) float64 { return tenth(a - b) },
		"mid": func(a, b float64) float64 { return tenth((a + b) / 2) },
		"on":  func(class string) string { return "on" + strings.TrimPrefix(class, "h") },
	}).Parse(pageText))
}

func tenth(v float64) float64 { return math.Round(v*10) / 10 }

// pageData is what the template shows.
type pageData struct {
	Title   string
	Style   template.CSS
	Apart   string
	Against string
	Runs    []Run
	Groups  []pageGroup
	Made    []made
}

type pageGroup struct {
	Against     string
	Suite, Unit string
	Notes       []string
	Rows        []pageRow
	Budgets     []*frontChart
	Fronts      []*frontChart
	Heats       []*heatChart
	Charts      []*dotChart
}

// pageRow is a series in the table.
type pageRow struct {
	Number, N, Failed   int
	Label, Class, Path  string
	Score, StdErr, Diff string
	TTFT, ITL           string
	KV, Read, Peak      string
}

// made says how a run came about.
type made struct {
	Name, Model, Version, Machine, Started, Command, Options string
	Complete                                                 bool
}

// WriteHTML writes the page: one file, nothing else needed.
func (c *Comparison) WriteHTML(w io.Writer, title string) error {
	d := pageData{Title: title, Style: template.CSS(pageStyle), Apart: c.apartNotice(), Runs: c.Runs}
	for _, g := range c.Groups {
		d.Against = g.Against
		draw := charts{g}
		d.Groups = append(d.Groups, pageGroup{Suite: g.heading(), Against: g.against(), Notes: g.Notes, Unit: unit(g.Metric), Rows: g.rows(), Budgets: draw.budgetCharts(), Fronts: draw.fronts(), Heats: draw.heats(), Charts: draw.scoreCharts()})
	}
	var err error
	if d.Made, err = madeOf(c.Runs); err != nil {
		return err
	}
	if err := page().Execute(w, d); err != nil {
		return fmt.Errorf("report: page: %w", err)
	}
	return nil
}

// madeOf says how runs came about.
func madeOf(runs []Run) (out []made, err error) {
	for _, r := range runs {
		o, m := r.Results.Options, r.Results.Machine
		options, err := json.MarshalIndent(o, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("report: %s: %w", r.Name, err)
		}
		out = append(out, made{Name: r.Name, Model: o.Model.Name, Version: o.Version, Started: m.Started, Command: commandLine(m.Command),
			Machine: fmt.Sprintf("%s, %d cores, %s", m.CPU, m.Cores, m.OS), Options: string(options), Complete: r.Results.Complete})
	}
	return out, nil
}

// rows are the table's.
func (g *Group) rows() []pageRow {
	styles := charts{g}.styles()
	var out []pageRow
	for _, s := range g.Series {
		st := styles[s.family]
		r := pageRow{Number: s.Number, N: s.N, Failed: s.Failed, Label: s.Label, Class: st.class, Path: marker(st.shape, 7, 7, 5),
			Score: "–", Diff: "–", TTFT: "–", ITL: "–", KV: bytesText(total(s.KVHeld)), Read: bytesText(int64(s.KVRead)), Peak: bytesText(total(s.KVMean))}
		if s.Score != nil {
			r.Score, r.StdErr = fmt.Sprintf("%.2f", *s.Score), fmt.Sprintf("%.2f", s.StdErr)
		}
		if s.Diff != nil {
			r.Diff = s.Diff.String()
		}
		if s.TTFT > 0 {
			r.TTFT = fmt.Sprintf("%.0f ms", s.TTFT)
		}
		if s.ITL > 0 {
			r.ITL = fmt.Sprintf("%.1f ms", s.ITL)
		}
		out = append(out, r)
	}
	return out
}

// commandLine quotes arguments for a shell where they need it.
func commandLine(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n\"'$&|;<>()*?[]{}`\\!#~") {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}
