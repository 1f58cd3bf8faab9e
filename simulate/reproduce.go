package simulate

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
)

// Results is what `infer reproduce` writes beside its page.
type Results struct {
	Experiments []*Result `json:"experiments"`
}

// measured is what this project has measured of the papers' experiments, small: rows of data/measured.json, as its published
// benchmarks have them.
type measured struct {
	ID    string `json:"id"`
	Quote string `json:"quote"` // what the page says, which Reason names
	Row
}

//go:embed data/measured.json
var measuredText []byte

func measuredRows() (list []measured) {
	if err := json.Unmarshal(measuredText, &list); err != nil {
		panic("simulate: data/measured.json: " + err.Error())
	}
	return list
}

// Reproduce answers experiments by ID, measured rows behind the modelled ones; none means all. Errors wrap ErrArgument.
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
		for _, m := range measuredRows() {
			if find(m.ID) == find(id) {
				r.Rows = append(r.Rows, m.Row)
			}
		}
		out.Experiments = append(out.Experiments, r)
	}
	return out, nil
}

// WriteJSON writes every row.
func (r *Results) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

//go:embed data/page.html
var pageText string

var page = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(pageText)) })

// shown is the page.
type shown struct {
	// predictions of values that a paper prints
	Held    []verdict // within a tenth, by the product's code
	Formula []verdict // within a tenth, by formulas of the hardware
	Banded  []verdict // farther off, inside a band over parameters that the paper leaves open
	Missed  []verdict
	// predictions of orders, limits and ranges
	Bounds, Broken []verdict
	Again          []verdict // what a figure prints again of another
	Reported       []verdict // printed values that no bound is asked for
	Fitted         []verdict
	Papers         []shownPaper
	Measured       int
	Accuracy       map[string]int // statements about accuracy by verdict
}

// verdict is one value beside the paper's.
type verdict struct {
	Target, Unit, Ours, Paper, Error, Band, Reason string
}

// shownPaper is the experiments of a paper and the parameters that they share.
type shownPaper struct {
	Name        string
	Experiments []shownExperiment
	Parameters  []shownParameter
}

type shownExperiment struct {
	ID, Title string
	Charts    []chart
	Result    *Result
	Measured  []Row
}

// shownParameter is a parameter and the experiments with another value of it than the first that has it.
type shownParameter struct {
	Name, Value, In string
	Parameter
}

// paperNames are the papers by the first part of an ID.
var paperNames = []struct{ prefix, name string }{{"hillinfer", "HillInfer"}, {"instinfer", "InstInfer"}, {"sliminfer", "SlimInfer"}, {"evicpress", "EvicPress"}, {"scale", "Larger than the papers"}, {"expert", "Models larger than memory"}}

// WriteHTML writes one page that loads nothing.
func (r *Results) WriteHTML(w io.Writer) error {
	s := shown{Accuracy: map[string]int{}}
	for _, p := range paperNames {
		one := shownPaper{Name: p.name}
		seen := map[string]int{}
		for _, e := range r.Experiments {
			if prefix, _, _ := strings.Cut(e.ID, "-"); prefix != p.prefix {
				continue
			}
			x := shownExperiment{ID: e.ID, Title: find(e.ID).title, Charts: charts(slices.Clone(e.Rows)), Result: e}
			for _, row := range e.Rows {
				if row.Source == Measured {
					x.Measured = append(x.Measured, row)
					s.Measured++
				}
				s.judge(row, row.Code == Shared || len(e.Uses) > 0)
			}
			for i := range e.Accuracy {
				s.Accuracy[e.Accuracy[i].Verdict()]++
			}
			s.judgeOrders(e)
			one.Experiments = append(one.Experiments, x)
			one.add(e, seen)
		}
		if len(one.Experiments) > 0 {
			s.Papers = append(s.Papers, one)
		}
	}
	return page().Execute(w, s)
}

// Total is how many predictions of printed values there are.
func (s shown) Total() int { return len(s.Held) + len(s.Formula) + len(s.Banded) + len(s.Missed) }

// Limits is how many predictions of orders, limits and ranges there are.
func (s shown) Limits() int { return len(s.Bounds) + len(s.Broken) }

// printedAgain are targets whose values another figure's targets print too: a reduction of latency and a speedup are one measurement.
var printedAgain = map[string]string{"hillinfer-fig12/reduction-smallest": "hillinfer-fig13/speedup-smallest", "hillinfer-fig12/reduction-largest": "hillinfer-fig13/speedup-largest"}

// OwnCode says that the product's code ran a whole step of it.
func (e shownExperiment) OwnCode() bool {
	return slices.ContainsFunc(e.Result.Rows, func(r Row) bool { return r.Code == Shared })
}

// judge sorts a row that a paper prints; own says that the product's code has worked it out.
func (s *shown) judge(r Row, own bool) {
	to, ok := targets()[r.Target]
	if !ok || r.Paper == nil || r.Kind == ClosedForm {
		return
	}
	v := verdict{Target: r.Target, Unit: r.Unit, Ours: fmt.Sprintf("%.4g", r.Value), Paper: relation(to), Reason: r.Reason}
	if r.Error != nil && to.Relation != ">" && to.Relation != "<" && to.Relation != "within" {
		v.Error = fmt.Sprintf("%+.1f %%", 100**r.Error)
	}
	if r.Low != nil {
		v.Band = fmt.Sprintf("%.4g … %.4g, over %s", *r.Low, *r.High, strings.Join(r.Varied, ", "))
	}
	switch {
	case r.Kind == Calibrated:
		s.Fitted = append(s.Fitted, v)
	case printedAgain[r.Target] != "":
		v.Reason = "counted once, as " + printedAgain[r.Target]
		s.Again = append(s.Again, v)
	case to.Role == "report":
		s.Reported = append(s.Reported, v)
	case to.bounds() && to.holds(r):
		s.Bounds = append(s.Bounds, v)
	case to.bounds():
		s.Broken = append(s.Broken, v)
	case to.near(r) && own:
		s.Held = append(s.Held, v)
	case to.near(r):
		s.Formula = append(s.Formula, v)
	case to.holds(r):
		s.Banded = append(s.Banded, v)
	default:
		s.Missed = append(s.Missed, v)
	}
}

// judgeOrders sorts what a paper says of several rows: in which order they are, or that they fall along x.
func (s *shown) judgeOrders(e *Result) {
	for _, key := range slices.Sorted(maps.Keys(targets())) {
		to := targets()[key]
		if find(to.ID) != find(e.ID) || to.Role != "predict" || to.Relation != "order" && to.Relation != "falls" {
			continue
		}
		v := verdict{Target: key, Paper: "rising: " + strings.Join(to.Order, " < ")}
		rows := to.along(e)
		least, ok := len(to.Order), true
		if to.Relation == "falls" {
			v.Paper, least = "falls along "+to.Along, 4
			slices.Reverse(rows)
		}
		for i, r := range rows {
			ok = ok && (i == 0 || rows[i-1].Value < r.Value)
		}
		values := make([]string, len(rows))
		for i, r := range rows {
			values[i] = fmt.Sprintf("%s %.4g", r.Series, r.Value)
		}
		if v.Ours = strings.Join(values, ", "); !ok || len(rows) < least {
			v.Reason = fmt.Sprintf("%d rows of at least %d, which do not all rise", len(rows), least)
			s.Broken = append(s.Broken, v)
			continue
		}
		s.Bounds = append(s.Bounds, v)
	}
}

// along are the modelled rows that a target is about: of one series by their x, or one of each series in the order given.
func (t target) along(e *Result) (out []Row) {
	for _, r := range e.Rows {
		if r.Source != Measured && r.Metric == t.Metric && t.Relation == "falls" && r.Series == t.Series && contains(r.X, t.X) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Row) int {
		x, _ := number(a.X[t.Along])
		y, _ := number(b.X[t.Along])
		return cmp.Compare(x, y)
	})
	for _, series := range t.Order {
		for _, r := range e.Rows {
			if r.Source != Measured && r.Metric == t.Metric && r.Series == series && contains(r.X, t.X) {
				out = append(out, r)
				break
			}
		}
	}
	return out
}

// contains says whether x has all of some keys and values.
func contains(x, some map[string]any) bool {
	for k, v := range some {
		if x[k] != v {
			return false
		}
	}
	return true
}

// relation is what a paper prints.
func relation(t target) string {
	switch {
	case t.Relation == "within" && t.ValueHigh != nil:
		return fmt.Sprintf("%.4g … %.4g", t.Value, *t.ValueHigh)
	case t.Relation == ">" || t.Relation == "<":
		return fmt.Sprintf("%s %.4g", t.Relation, t.Value)
	}
	return fmt.Sprintf("%.4g", t.Value)
}

// add notes an experiment's parameters.
func (p *shownPaper) add(e *Result, seen map[string]int) {
	names := make([]string, 0, len(e.Parameters))
	for n := range e.Parameters {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		v := e.Parameters[n]
		text := fmt.Sprint(v.Value)
		if f, ok := v.Value.(float64); ok && math.Abs(f) >= 1e6 {
			text = fmt.Sprintf("%.4g", f)
		}
		if v.Low != nil {
			text += fmt.Sprintf(" (%.4g … %.4g)", *v.Low, *v.High)
		}
		key := n + "\x00" + text
		if at, ok := seen[key]; ok {
			p.Parameters[at].In += ", " + e.ID
			continue
		}
		seen[key] = len(p.Parameters)
		p.Parameters = append(p.Parameters, shownParameter{Name: n, Value: text, In: e.ID, Parameter: v})
	}
}
