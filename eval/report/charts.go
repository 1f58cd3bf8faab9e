package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"terrace/eval"
	"terrace/eval/run"
)

// charts are a group's.
type charts struct{ *Group }

// chartWidth is the drawing width of every chart; the page shows charts at about this size, so that text stays readable on
// a telephone and columns fill a wide screen.
const chartWidth = 400

// point is a marker.
type point struct {
	Path, Class, Title string
	X, Y               float64
	Label              string
	LX, LY             float64 // of the label
	Bar                string  // SVG path of the error bar
	low, high          float64 // the bar's ends
	Leader             string  // SVG path from a label that lies apart
}

// dotRow is one series in a dot chart.
type dotRow struct {
	point
	Name      string
	Value     string
	Low, High float64
	HasBar    bool
}

// dotChart shows scores with 95 % error bars, one row a series.
type dotChart struct {
	Title, Unit   string
	Caption       string // which are worse than the policy that they are measured against
	Width, Height float64
	Left, Right   float64
	AxisY         float64
	Ticks         []tick
	Rows          []dotRow
}

// style gives a series its colour class and shape, by method.
type style struct {
	class string
	shape int
}

// styles colours methods in order of appearance; full is drawn in the text's colour.
func (g charts) styles() map[string]style {
	out := map[string]style{"full": {"c0", 0}}
	for _, s := range g.Series {
		if _, ok := out[s.family]; !ok {
			n := len(out)
			out[s.family] = style{"c" + strconv.Itoa((n-1)%8+1), n}
		}
	}
	return out
}

// z95 widens a standard error to a 95 % interval.
const z95 = 1.96

// dots draws one chart; score returns a series' score and error, or false.
func (g charts) dots(title string, m eval.Metric, score func(s *Series) (v, stderr float64, n int, ok bool)) *dotChart {
	const rowHeight, top = 19, 8
	c := &dotChart{Title: title, Unit: unit(m), Width: chartWidth, Left: 168, Right: chartWidth - 46}
	low, high := math.Inf(1), math.Inf(-1)
	type cell struct {
		s     *Series
		v, se float64
		n     int
	}
	var cells []cell
	for _, s := range g.Series {
		v, se, n, ok := score(s)
		if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		cells = append(cells, cell{s, v, se, n})
		low, high = min(low, v-z95*se), max(high, v+z95*se)
	}
	if len(cells) == 0 {
		return nil
	}
	if m.Kind == eval.Percent {
		low, high = 0, min(100, max(high, 1))
	}
	x := niceScale(low, high, c.Left, c.Right, 4)
	c.Ticks = x.ticks()
	styles := g.styles()
	for i, k := range cells {
		y := float64(top + rowHeight*i + rowHeight/2)
		st := styles[k.s.family]
		row := dotRow{Name: fmt.Sprintf("%d %s", k.s.Number, brief(k.s.Label)), Value: number(k.v), HasBar: k.se > 0, Low: x.at(k.v - z95*k.se), High: x.at(k.v + z95*k.se)}
		row.point = point{X: x.at(k.v), Y: y, Class: st.class, Path: marker(st.shape, x.at(k.v), y, 4.5),
			Title: fmt.Sprintf("%s: %s ± %s (95 %%), n = %d", k.s.Label, number(k.v), number(z95*k.se), k.n)}
		c.Rows = append(c.Rows, row)
	}
	c.AxisY = float64(top + rowHeight*len(cells))
	c.Height = c.AxisY + 24
	return c
}

// scoreCharts are the mean of tasks, then each kind of tasks and length, further measures, then each task.
func (g charts) scoreCharts() []*dotChart {
	var out []*dotChart
	add := func(c *dotChart, diff func(s *Series) *Interval) {
		if c != nil {
			c.Caption = g.verdict(diff)
			out = append(out, c)
		}
	}
	if len(g.Tasks) > 1 {
		add(g.dots("mean of "+strconv.Itoa(len(g.Tasks))+" tasks", g.Metric, func(s *Series) (float64, float64, int, bool) {
			if s.Score == nil {
				return 0, 0, 0, false
			}
			return *s.Score, s.StdErr, s.N, true
		}), func(s *Series) *Interval { return s.Diff })
	}
	mean := eval.Metric{Name: "mean of tasks", Kind: eval.Percent}
	for _, kind := range g.Kinds {
		add(g.dots(kind, mean, func(s *Series) (float64, float64, int, bool) {
			m, ok := s.Groups[kind]
			return m.Score, m.StdErr, m.N, ok
		}), g.diffAmong(mean, func(o eval.Outcome) bool { return g.kindOf(o.Task) == kind }))
	}
	for _, length := range g.Lengths {
		add(g.dots("samples of "+length, mean, func(s *Series) (float64, float64, int, bool) {
			m, ok := s.Length[length]
			return m.Score, m.StdErr, m.N, ok
		}), g.diffAmong(mean, func(o eval.Outcome) bool { return o.Labels["length"] == length }))
	}
	for _, name := range g.Measures {
		add(g.dots(name, eval.Metric{Name: "mean over samples", Kind: "plain"}, func(s *Series) (float64, float64, int, bool) {
			v, ok := s.Values[name]
			return v, 0, s.N, ok
		}), func(*Series) *Interval { return nil })
	}
	for _, task := range g.Tasks {
		var m eval.Metric
		for _, s := range g.Series {
			if t, ok := s.Tasks[task]; ok {
				m = t.Metric
			}
		}
		add(g.dots(task, m, func(s *Series) (float64, float64, int, bool) {
			t, ok := s.Tasks[task]
			return t.Score.Score, t.StdErr, t.N, ok && t.N > 0
		}), g.diffAmong(m, func(o eval.Outcome) bool { return o.Task == task }))
	}
	return out
}

// kindOf is the kind of a task; "" where it has none.
func (g charts) kindOf(task string) string {
	for _, s := range g.Series {
		if t, ok := s.Tasks[task]; ok {
			return t.Metric.Group
		}
	}
	return ""
}

// frontChart is score over a cost, with the Pareto front.
type frontChart struct {
	Title, XLabel, YLabel string
	Caption               string // which are worse than the policy that they are measured against
	Width, Height         float64
	Left, Right, Top, Low float64
	XTicks, YTicks        []tick
	Points                []point
	Front                 string // SVG path
	// of frontiers: error bars, lines that join a policy's points, and their names
	Bars, Lines []stroke
	Names       []lineName
}

// stroke is a coloured path.
type stroke struct{ Class, Path string }

// lineName is a text beside a line's point.
type lineName struct {
	X, Y         float64
	Text, Leader string
}

// frontsOf are the fronts that a chart shows: one over all series, or one for each family of policies.
type frontsOf bool

const (
	ofAll      frontsOf = false
	ofFamilies frontsOf = true
)

// frontChart draws one; cost returns false for a series without it.
func (g charts) frontChart(title, xLabel string, of frontsOf, cost func(s *Series) (float64, bool)) *frontChart {
	c := &frontChart{Title: title, XLabel: xLabel, YLabel: unit(g.Metric), Width: chartWidth, Height: 300, Left: 46, Right: chartWidth - 16, Top: 14, Low: 256}
	var costs, scores, errs []float64
	var series []*Series
	for _, s := range g.Series {
		if v, ok := cost(s); ok && s.Score != nil && v > 0 {
			costs, scores, errs, series = append(costs, v), append(scores, *s.Score), append(errs, s.StdErr), append(series, s)
		}
	}
	if len(series) < 2 {
		return nil
	}
	cheap, dear := slices.Min(costs), slices.Max(costs)
	from := 0.0
	if cheap > dear/3 { // points that lie close together are shown close up
		from = max(0, cheap-(dear-cheap)*0.1)
	}
	x := niceScale(from, dear+(dear-cheap)*0.04, c.Left, c.Right, 5)
	low, high := slices.Min(scores), slices.Max(scores)
	for i, v := range scores { // bars are shown whole, so that nothing smaller than an error looks large
		low, high = min(low, v-z95*errs[i]), max(high, v+z95*errs[i])
	}
	pad := max((high-low)*0.08, 0.2)
	if high += pad; g.Metric.Kind == eval.Percent {
		high = min(high, 100)
	}
	y := niceScale(max(0, low-pad), high, c.Low, c.Top, 5)
	c.XTicks, c.YTicks = x.ticks(), y.ticks()
	styles := g.styles()
	for i, s := range series {
		st := styles[s.family]
		p := point{X: x.at(costs[i]), Y: y.at(scores[i]), Class: st.class, Label: strconv.Itoa(s.Number),
			Path:  marker(st.shape, x.at(costs[i]), y.at(scores[i]), 5),
			Title: fmt.Sprintf("%d %s: %s ± %s (95 %%) at %s", s.Number, s.Label, number(scores[i]), number(z95*errs[i]), number(costs[i]))}
		p.low, p.high = p.Y, p.Y
		if errs[i] > 0 {
			p.low, p.high = y.at(scores[i]-z95*errs[i]), y.at(scores[i]+z95*errs[i])
			p.Bar = fmt.Sprintf("M%.1f %.1fV%.1f", p.X, p.low, p.high)
		}
		c.Points = append(c.Points, p)
	}
	families := map[string][]int{}
	for i, s := range series {
		name := ""
		if of == ofFamilies {
			name = s.family
		}
		families[name] = append(families[name], i)
	}
	var lines []segment
	for _, name := range slices.Sorted(maps.Keys(families)) {
		path, steps := c.frontPath(families[name], costs, scores, errs, g.Metric.LessIsBetter())
		c.Front += path
		lines = append(lines, steps...)
	}
	placeLabels(c.Points, lines, c.Left, c.Right, c.Top, c.Low)
	return c
}

// frontPath is the front of some of the points, as steps.
func (c *frontChart) frontPath(points []int, costs, scores, errs []float64, lessIsBetter bool) (string, []segment) {
	var path strings.Builder
	var steps []segment
	x, y := 0.0, 0.0
	some := func(of []float64) (out []float64) {
		for _, i := range points {
			out = append(out, of[i])
		}
		return out
	}
	for k, i := range front(some(costs), some(scores), some(errs), lessIsBetter) {
		p := c.Points[points[i]]
		if k == 0 {
			fmt.Fprintf(&path, "M%.1f %.1f", p.X, p.Y)
		} else {
			fmt.Fprintf(&path, "H%.1fV%.1f", p.X, p.Y)
			steps = append(steps, segment{x, y, p.X, y}, segment{p.X, y, p.X, p.Y})
		}
		x, y = p.X, p.Y
	}
	return path.String(), steps
}

// fronts are accuracy over time to the first token and over memory held.
func (g charts) fronts() []*frontChart {
	var out []*frontChart
	seconds := func(s *Series) (float64, bool) { return s.TTFT / 1000, s.TTFT > 0 }
	memory := func(s *Series) (float64, bool) { return float64(total(s.KVHeld)) / (1 << 20), total(s.KVHeld) > 0 }
	moved := func(s *Series) (float64, bool) {
		v, ok := s.Values["bytes_share"]
		return 100 * v, ok
	}
	gap := func(s *Series) (float64, bool) { return s.ITL, s.ITL > 0 }
	waiting := func(s *Series) (float64, bool) { return s.TTFTMean / 1000, s.TTFTMean > 0 }
	for _, c := range []*frontChart{
		g.frontChart("Quality and mean time to the first token, each placement's front", "mean TTFT, seconds", ofFamilies, waiting),
		replayTables(g).rateChart(),
		g.frontChart("Score and bytes moved a token", "KV and sketch bytes that a step reads, % of full's", ofAll, moved),
		g.frontChart("Score and time to the first token", "median TTFT, seconds", ofAll, seconds),
		g.frontChart("Score and KV memory", "KV held while answering, mean of samples, MiB", ofAll, memory),
		g.frontChart("Score and time between tokens", "median ITL, milliseconds", ofAll, gap),
	} {
		if c != nil {
			if c.Caption == "" {
				c.Caption = g.verdict(func(s *Series) *Interval { return s.Diff })
			}
			out = append(out, c)
		}
	}
	return out
}

// heatChart is depth × length of one series.
type heatChart struct {
	Title         string
	Caption       string // the difference of the series, where it is worse or better
	Width, Height float64
	Cells         []heatCell
	Rows, Columns []tick
	LabelY        float64
}

type heatCell struct {
	X, Y, W, H, TX, TY float64
	Class, Text, Title string
}

// heats draws a map a series for outcomes that are labelled with depth and context.
func (g charts) heats() []*heatChart {
	var out []*heatChart
	for _, s := range g.Series {
		cells := map[[2]string][]eval.Outcome{}
		var depths, contexts []string
		for _, o := range s.outcomes {
			d, c := o.Labels["depth"], o.Labels["context"]
			if d == "" || c == "" {
				continue
			}
			if !slices.Contains(depths, d) {
				depths = append(depths, d)
			}
			if !slices.Contains(contexts, c) {
				contexts = append(contexts, c)
			}
			cells[[2]string{d, c}] = append(cells[[2]string{d, c}], o)
		}
		if len(cells) > 0 {
			byNumber(depths)
			byNumber(contexts)
			h := heat(fmt.Sprintf("%d %s", s.Number, s.Label), depths, contexts, cells)
			if d := s.Diff; d != nil && d.High < 0 {
				h.Caption = fmt.Sprintf("Worse than %s: %s points.", g.Against, d)
			}
			out = append(out, h)
		}
	}
	return out
}

func byNumber(list []string) {
	slices.SortFunc(list, func(a, b string) int {
		x, _ := strconv.ParseFloat(a, 64)
		y, _ := strconv.ParseFloat(b, 64)
		return int(math.Copysign(1, x-y))
	})
}

func heat(title string, depths, contexts []string, cells map[[2]string][]eval.Outcome) *heatChart {
	const left, top, rowHeight = 46.0, 6.0, 22.0
	w := (chartWidth - left - 4) / float64(len(contexts))
	h := &heatChart{Title: title, Width: chartWidth, LabelY: top + rowHeight*float64(len(depths)) + 16}
	h.Height = h.LabelY + 8
	for i, d := range depths {
		y := top + rowHeight*float64(i)
		h.Rows = append(h.Rows, tick{y + rowHeight/2 + 4, d + " %"})
		for j, c := range contexts {
			list := cells[[2]string{d, c}]
			if len(list) == 0 {
				continue
			}
			s := run.ScoreOf(eval.Metric{Kind: eval.Percent}, list)
			x := left + w*float64(j)
			h.Cells = append(h.Cells, heatCell{X: x + 0.5, Y: y + 0.5, W: w - 1, H: rowHeight - 1, TX: x + w/2, TY: y + rowHeight/2 + 4,
				Class: "h" + strconv.Itoa(int(math.Round(s.Score/10))), Text: strconv.FormatFloat(s.Score, 'f', 0, 64),
				Title: fmt.Sprintf("%s tokens, depth %s %%: %.1f (n = %d)", c, d, s.Score, s.N)})
		}
	}
	for j, c := range contexts {
		h.Columns = append(h.Columns, tick{left + w*(float64(j)+0.5), thousands(c)})
	}
	return h
}

// thousands is 4096 as 4k.
func thousands(s string) string {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1024 || n%1024 != 0 {
		return s
	}
	return strconv.Itoa(n/1024) + "k"
}

// brief is a label that fits beside a chart.
func brief(label string) string { return shorten(strings.ReplaceAll(label, ":budget=", " "), 24) }

func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// number prints three significant digits or one decimal.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0 || a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
