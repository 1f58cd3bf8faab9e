package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"terrace/policy"
)

// frontierPoint is one policy of one model and one set of settings: how far from full, for how many bytes.
type frontierPoint struct {
	Model, Policy string
	Prompts       int
	KL, Same      estimate // nats a token; share of tokens with full's likeliest one
	// KV and Scan are what a step attends to and what it reads to choose, Bytes both: shares of what full reads.
	KV, Scan, Bytes float64
	line            string // what the policy is at other budgets too
}

// estimate is a mean over prompts with its 95 % interval; equal ends where there are fewer than pairsMin.
type estimate struct{ Mean, Low, High float64 }

// estimateOf is the mean of values, with the percentile interval of a bootstrap over all prompts.
func estimateOf(values []float64) estimate {
	e := estimate{Mean: average(values, nil)}
	e.Low, e.High = e.Mean, e.Mean
	if len(values) < pairsMin {
		return e
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(values))))
	means := make([]float64, resamples)
	for i := range means {
		means[i] = average(values, rng)
	}
	slices.Sort(means)
	at := func(q float64) float64 { return means[int(math.Round(q*float64(resamples-1)))] }
	e.Low, e.High = at(0.025), at(0.975)
	return e
}

// frontier are the series of one model that say what a step moves, on the prompts that all of them have answered: a run that is
// not complete compares the same prompts. Full is not among them.
func (g *Group) frontier(model string) (out []frontierPoint) {
	type key struct{ task, id string }
	var series []*Series
	answered := map[key]int{}
	for _, s := range g.Series {
		if s.Model != model || s.Policy == Full {
			continue
		}
		n := 0
		for _, o := range s.outcomes {
			if _, ok := o.Values["bytes_share"]; ok && o.Score != nil {
				answered[key{o.Task, o.ID}]++
				n++
			}
		}
		if n > 0 {
			series = append(series, s)
		}
	}
	for _, s := range series {
		p := frontierPoint{Model: model, Policy: s.Policy, line: lineOf(s.Policy)}
		var kl, same []float64
		for _, o := range s.outcomes {
			if answered[key{o.Task, o.ID}] < len(series) || o.Score == nil {
				continue
			}
			v := o.Values
			kl, same = append(kl, v["kl"]), append(same, *o.Score)
			p.Bytes += v["bytes_share"]
			if all := v["kv_mib_per_token"] + v["scan_mib_per_token"]; all > 0 {
				p.KV += v["bytes_share"] * v["kv_mib_per_token"] / all
			}
		}
		if p.Prompts = len(kl); p.Prompts == 0 {
			continue
		}
		n := float64(p.Prompts)
		p.Bytes, p.KV = p.Bytes/n, p.KV/n
		p.Scan = max(0, p.Bytes-p.KV)
		p.KL, p.Same = estimateOf(kl), estimateOf(same)
		out = append(out, p)
	}
	frontierPanel{points: out}.sort()
	return out
}

// lineOf is a policy without what says how much it reads.
func lineOf(spec string) string {
	name, params, _ := strings.Cut(spec, ":")
	var kept []string
	for _, p := range strings.Split(params, ",") {
		if p == "" || isBudget(spec, p) {
			continue
		}
		kept = append(kept, strings.TrimPrefix(strings.TrimPrefix(p, "select="), "score="))
	}
	return strings.Join(append([]string{name}, kept...), " ")
}

// isBudget reports whether a parameter of a spec says how much is kept or read.
func isBudget(spec, param string) bool {
	k, v, _ := strings.Cut(param, "=")
	return strings.HasSuffix(v, "%") || k == "budget" || k == "ratio" || k == "p" || k == "dense_layers" || k == policy.BudgetParam(spec)
}

// models are those of a group's series, in order of appearance.
func (g *Group) models() (out []string) {
	for _, s := range g.Series {
		if !slices.Contains(out, s.Model) {
			out = append(out, s.Model)
		}
	}
	return out
}

// promptTokens is the longest prompt of a model's outcomes.
func (g *Group) promptTokens(model string) (most int) {
	for _, s := range g.Series {
		for _, o := range s.outcomes {
			if s.Model == model {
				most = max(most, o.Prompt)
			}
		}
	}
	return most
}

// frontierPanel is the points of one model and length, by bytes.
type frontierPanel struct {
	title  string
	points []frontierPoint
}

func (p frontierPanel) sort() {
	slices.SortStableFunc(p.points, func(a, b frontierPoint) int { return cmp.Compare(a.Bytes, b.Bytes) })
}

// Frontier is closeness to full over bytes moved, a panel for each model and length of prompts.
type Frontier struct{ panels []frontierPanel }

// Frontier has the panels of all groups that say what a step moves, short prompts first. ErrNothing where none does.
func (c *Comparison) Frontier() (*Frontier, error) {
	type panel struct {
		frontierPanel
		tokens int
	}
	var all []panel
	for _, g := range c.Groups {
		for _, m := range g.models() {
			if points := g.frontier(m); len(points) > 0 {
				n := g.promptTokens(m)
				all = append(all, panel{frontierPanel{fmt.Sprintf("%s, %d tokens, %d prompts", m, n, points[0].Prompts), points}, n})
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("report: no run says how many bytes a step moves (suite agreement): %w", ErrNothing)
	}
	slices.SortStableFunc(all, func(a, b panel) int { return cmp.Compare(a.tokens/500, b.tokens/500) })
	f := &Frontier{}
	for _, p := range all {
		f.panels = append(f.panels, p.frontierPanel)
	}
	return f, nil
}

// frontierColumns are those of the CSV file.
var frontierColumns = []string{"panel", "policy", "prompts", "bytes_share", "kv_share", "scan_share", "kl", "kl_low", "kl_high", "same_top", "same_top_low", "same_top_high"}

// WriteCSV writes a line for each model, length and policy: means over prompts, with 95 % intervals, numbers to four digits.
func (f *Frontier) WriteCSV(w io.Writer) error {
	out, rows := csv.NewWriter(w), [][]string{frontierColumns}
	for _, panel := range f.panels {
		for _, p := range panel.points {
			row := []string{panel.title, p.Policy, strconv.Itoa(p.Prompts)}
			for _, v := range p.numbers() {
				row = append(row, strconv.FormatFloat(*v, 'g', 4, 64))
			}
			rows = append(rows, row)
		}
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// numbers are a point's columns from the fourth on.
func (p *frontierPoint) numbers() []*float64 {
	return []*float64{&p.Bytes, &p.KV, &p.Scan, &p.KL.Mean, &p.KL.Low, &p.KL.High, &p.Same.Mean, &p.Same.Low, &p.Same.High}
}

// ReadFrontier reads what WriteCSV wrote; errors name the line.
func ReadFrontier(r io.Reader) (*Frontier, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = len(frontierColumns)
	if head, err := in.Read(); err != nil || !slices.Equal(head, frontierColumns) {
		return nil, fmt.Errorf("report: line 1: want the columns %s (compare --csv)", strings.Join(frontierColumns, ","))
	}
	f := &Frontier{}
	for {
		row, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		line, _ := in.FieldPos(0)
		p := frontierPoint{Policy: row[1], line: lineOf(row[1])}
		if p.Prompts, err = strconv.Atoi(row[2]); err != nil || p.Prompts < 1 {
			return nil, fmt.Errorf("report: line %d: prompts %.20q, want a number above 0", line, row[2])
		}
		for i, v := range p.numbers() {
			if *v, err = strconv.ParseFloat(row[3+i], 64); err != nil || !(*v >= 0 && *v < math.MaxFloat32) || i == 0 && *v == 0 {
				return nil, fmt.Errorf("report: line %d: %s %.20q, want a number that is not negative", line, frontierColumns[3+i], row[3+i])
			}
		}
		at := slices.IndexFunc(f.panels, func(x frontierPanel) bool { return x.title == row[0] })
		if at < 0 {
			at, f.panels = len(f.panels), append(f.panels, frontierPanel{title: row[0]})
		}
		f.panels[at].points = append(f.panels[at].points, p)
	}
	if len(f.panels) == 0 {
		return nil, fmt.Errorf("report: no line below the columns: %w", ErrNothing)
	}
	for _, panel := range f.panels {
		panel.sort()
	}
	return f, nil
}

// WriteSVG writes one SVG file: for each model and length a panel of divergence from full over bytes moved a token, both
// logarithmic, with error bars; points of one policy at several budgets are joined, and its name stands beside one of them.
func (f *Frontier) WriteSVG(w io.Writer, note string) error {
	styles := lineStyles(f.panels)
	d := pictureData{Title: "Divergence from full over bytes moved a token", Note: note, Verdict: "KL 0 is full: a point is worse than full by its height.", Style: template.CSS(pageStyle), Width: 2*pictureMargins + frontierWidth}
	y := float64(pictureTop)
	for _, p := range f.panels {
		chart := p.chart(styles)
		d.Charts = append(d.Charts, placedChart{X: pictureMargins, Y: y, Chart: chart})
		y += chart.Height + pictureGap + 16
	}
	d.Height = y + 10
	if err := picture().ExecuteTemplate(w, "picture", d); err != nil {
		return fmt.Errorf("report: picture: %w", err)
	}
	return nil
}

// frontierWidth is the drawing width of a panel; they stand below each other, so that a telephone shows them at about this size.
const frontierWidth = 440

// lineStyles colours lines in order of appearance.
func lineStyles(panels []frontierPanel) map[string]style {
	var lines []string
	for _, panel := range panels {
		for _, p := range panel.points {
			if !slices.Contains(lines, p.line) {
				lines = append(lines, p.line)
			}
		}
	}
	slices.Sort(lines)
	out := map[string]style{}
	for i, l := range lines {
		out[l] = style{"c" + strconv.Itoa(i%8+1), i + 1}
	}
	return out
}

// chart draws a panel.
func (panel frontierPanel) chart(styles map[string]style) *frontChart {
	c := &frontChart{Title: panel.title, XLabel: "KV and sketch bytes that a decoded token reads, % of full's", YLabel: "KL, nats a token", Width: frontierWidth, Height: 400, Left: 46, Right: frontierWidth - 10, Top: 6, Low: 362}
	low, high := math.Inf(1), 0.0
	for _, p := range panel.points {
		low, high = min(low, bounded(p.KL.Low)), max(high, bounded(p.KL.High))
	}
	x := logScale(100*panel.points[0].Bytes*0.97, 100*panel.points[len(panel.points)-1].Bytes*1.03, c.Left, c.Right)
	y := logScale(low*0.9, high*1.1, c.Low, c.Top)
	c.XTicks, c.YTicks = x.ticks(), y.ticks()
	var costs, scores []float64
	lines := map[string][]point{}
	var order []string
	for _, p := range panel.points {
		st, px, py := styles[p.line], x.at(100*p.Bytes), y.at(bounded(p.KL.Mean))
		pt := point{X: px, Y: py, Class: st.class, Path: marker(st.shape, px, py, 4),
			Title: fmt.Sprintf("%s: KL %s (%s to %s), same token %.1f %%, bytes %.1f %% (KV %.1f, scan %.1f)", p.Policy, number(p.KL.Mean), number(p.KL.Low), number(p.KL.High), 100*p.Same.Mean, 100*p.Bytes, 100*p.KV, 100*p.Scan)}
		c.Points = append(c.Points, pt)
		costs, scores = append(costs, p.Bytes), append(scores, p.KL.Mean)
		if lines[p.line] == nil {
			order = append(order, p.line)
		}
		lines[p.line] = append(lines[p.line], pt)
		if p.KL.High > p.KL.Low {
			c.Bars = append(c.Bars, stroke{st.class, fmt.Sprintf("M%.1f %.1fV%.1f", px, y.at(bounded(p.KL.Low)), y.at(bounded(p.KL.High)))})
		}
	}
	for _, name := range order {
		path := ""
		for i, p := range lines[name] {
			path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], p.X, p.Y)
		}
		c.Lines = append(c.Lines, stroke{styles[name].class, path})
	}
	all := make([]int, len(panel.points))
	for i := range all {
		all[i] = i
	}
	c.Front, _ = c.frontPath(all, costs, scores, make([]float64, len(costs)), true) // of the means: their intervals are drawn
	c.nameLines(order, lines)
	return c
}

// bounded keeps a divergence on a logarithmic axis.
func bounded(kl float64) float64 { return max(kl, 1e-6) }

// nameLines puts each line's name beside the one of its points where it hits the fewest markers and other names.
func (c *frontChart) nameLines(order []string, lines map[string][]point) {
	const halfHeight = 6
	type box struct{ x, y, half float64 }
	var put []box
	for _, name := range order {
		half, best := 2.9*float64(len([]rune(name)))+2, math.Inf(1)
		var at box
		var from point
		for k, p := range lines[name] {
			for _, s := range spots {
				b := box{p.X + s.x, p.Y + s.y, half}
				if s.x > 4 {
					b.x += half - 6
				} else if s.x < -4 {
					b.x -= half - 6
				}
				cost := s.cost + 0.05*float64(k)
				if b.x-half < c.Left || b.x+half > c.Right+8 || b.y-halfHeight < c.Top || b.y+halfHeight > c.Low {
					cost += 30
				}
				for _, q := range c.Points {
					if math.Abs(q.X-b.x) < half+5 && math.Abs(q.Y-b.y) < halfHeight+4 {
						cost += 3
					}
				}
				for _, o := range put {
					if math.Abs(o.x-b.x) < half+o.half && math.Abs(o.y-b.y) < 2*halfHeight {
						cost += 6
					}
				}
				if cost < best {
					best, at, from = cost, b, p
				}
			}
		}
		put = append(put, at)
		n := lineName{X: tenth(at.x), Y: tenth(at.y + 4), Text: name}
		if math.Hypot(at.x-from.X, at.y-from.Y) > half+14 || math.Abs(at.y-from.Y) > 20 {
			toward := math.Copysign(max(0, math.Abs(at.x-from.X)-half), at.x-from.X)
			n.Leader = fmt.Sprintf("M%.1f %.1fL%.1f %.1f", from.X, from.Y, from.X+toward, at.y-math.Copysign(halfHeight, at.y-from.Y))
		}
		c.Names = append(c.Names, n)
	}
}
