package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"terrace/eval"
	"terrace/eval/run"
)

// BytesPoint is an amount of KV at which policies are compared.
type BytesPoint struct {
	Read  bool    // what a decode step reads; false: what is held while answering
	Share float64 // of that of the policy that others are measured against; above 0, at most 1
}

// ParseBytesPoint reads "25%" or "read=25%" (what a step reads) and "held=25%". Any other text is [ErrPoint].
func ParseBytesPoint(text string) (BytesPoint, error) {
	p, share := BytesPoint{Read: true}, strings.TrimPrefix(text, "read=")
	if s, ok := strings.CutPrefix(text, "held="); ok {
		p.Read, share = false, s
	}
	number, percent := strings.CutSuffix(share, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return p, fmt.Errorf("%q: want a share of KV bytes such as 25%%, read=25%% or held=25%%: %w", text, ErrPoint)
	}
	p.Share = v
	return p, nil
}

// bytes are a series' at the point's measure.
func (p BytesPoint) bytes(s *Series) float64 {
	if p.Read {
		return s.KVRead
	}
	return float64(total(s.KVHeld))
}

func (p BytesPoint) verb() string {
	if p.Read {
		return "read a step"
	}
	return "held"
}

// AtBytes compares policies at one amount of KV: for each policy that was run at several budgets, the score of each sample is interpolated,
// linearly in bytes, between the two budgets around the point. A budget within a hundredth of the point stands as it is. Nothing is
// extrapolated: a policy with no budget on one side of the point is named in the notes with what was measured. The policy that others are
// measured against keeps its own bytes. [ErrNothing] where no policy reaches the point.
func (c *Comparison) AtBytes(p BytesPoint) (*Comparison, error) {
	out, found := &Comparison{Runs: c.Runs}, false
	for _, g := range c.Groups {
		at, reached := g.atBytes(p)
		out.Groups, found = append(out.Groups, at), found || reached
	}
	if !found {
		return nil, fmt.Errorf("report: no policy was measured around %s of the KV bytes %s: %w", percentText(p.Share), p.verb(), ErrNothing)
	}
	return out, nil
}

// atBytes is the group at a point; false where no policy reaches it.
func (g *Group) atBytes(p BytesPoint) (at *Group, found bool) {
	at = &Group{Suite: g.Suite, Apart: g.Apart, Against: g.Against, Settings: g.Settings, Seed: g.Seed, Tasks: g.Tasks, Metric: g.Metric, key: g.key}
	at.note("policies at %s of the KV bytes that %s has %s; a policy between two budgets is interpolated, sample by sample", percentText(p.Share), g.Against, p.verb())
	for _, line := range g.lines() {
		base := g.base(line[0])
		switch {
		case base == nil || p.bytes(base) <= 0:
			at.note("%s: the bytes %s by %s are not known", line[0].name(), p.verb(), g.Against)
		case base.canonical == line[0].canonical:
			at.Series = append(at.Series, copyOf(base, 1))
		default:
			if s := at.reach(line, p, p.bytes(base)); s != nil {
				at.Series, found = append(at.Series, s), true
			}
		}
	}
	at.finish()
	return at, found
}

// lines are a group's series by model, run and policy without its budget, in order of appearance.
func (g *Group) lines() (out [][]*Series) {
	at := map[string]int{}
	for _, s := range g.Series {
		key := s.Model + "\x00" + s.fingerprint + "\x00" + s.Run + "\x00" + lineOf(s.Policy)
		if s.canonical == canonical(g.Against) { // its own, whatever its budget
			key += "\x00against"
		}
		i, seen := at[key]
		if !seen {
			i = len(out)
			at[key], out = i, append(out, nil)
		}
		out[i] = append(out[i], s)
	}
	return out
}

// reach is the series of a policy at the point, or nil with a note.
func (g *Group) reach(line []*Series, p BytesPoint, full float64) *Series {
	share := func(s *Series) float64 { return p.bytes(s) / full }
	if line = p.sorted(line); len(line) == 0 {
		return nil
	}
	for _, s := range line {
		if math.Abs(share(s)-p.Share) <= 0.01*p.Share {
			return copyOf(s, 1)
		}
	}
	i := slices.IndexFunc(line, func(s *Series) bool { return share(s) > p.Share })
	if i <= 0 {
		g.note("%s: measured at %s of the bytes, not on both sides of %s: run it with other budgets", lineOf(line[0].Policy), p.span(line, full), percentText(p.Share))
		return nil
	}
	low, high := line[i-1], line[i]
	return between(low, high, (p.Share-share(low))/(share(high)-share(low)))
}

// sorted are the series of a line whose bytes are known, by rising bytes.
func (p BytesPoint) sorted(line []*Series) []*Series {
	line = slices.DeleteFunc(slices.Clone(line), func(s *Series) bool { return p.bytes(s) <= 0 })
	slices.SortStableFunc(line, func(a, b *Series) int { return cmp.Compare(p.bytes(a), p.bytes(b)) })
	return line
}

// span says at which shares of full's bytes a sorted line was measured.
func (p BytesPoint) span(line []*Series, full float64) string {
	low, high := percentText(p.bytes(line[0])/full), percentText(p.bytes(line[len(line)-1])/full)
	if low != high {
		low += " to " + high
	}
	return low
}

// between is the series with weight w of high and 1 − w of low, on the samples that both have.
func between(low, high *Series, w float64) *Series {
	s := copyOf(low, 1-w)
	s.Between = append(s.Between, PolicyPart{high.Policy, w})
	s.Policy = fmt.Sprintf("%s (%s of %s, the rest %s)", lineOf(low.Policy), percentText(w), budgetOf(high.Policy), budgetOf(low.Policy))
	s.canonical, s.outcomes = s.Policy, nil
	type key struct{ task, id string }
	other := map[key]eval.Outcome{}
	for _, o := range high.outcomes {
		other[key{o.Task, o.ID}] = o
	}
	cells := map[string][]eval.Outcome{}
	for _, a := range low.outcomes {
		b, both := other[key{a.Task, a.ID}]
		if equal, _ := samePrompt(a, b); !both || !equal {
			continue
		}
		a.Policy, a.Values = s.Policy, nil
		a.Score = mixed(a.Score, b.Score, w, low.Tasks[a.Task].Metric.Kind == eval.Percent)
		s.outcomes, cells[a.Task] = append(s.outcomes, a), append(cells[a.Task], a)
	}
	mix := func(a, b float64) float64 { return (1-w)*a + w*b }
	s.Tasks, s.N, s.Failed = map[string]run.TaskResult{}, 0, 0
	var tasks []run.TaskResult
	for name, t := range low.Tasks {
		if len(cells[name]) == 0 {
			continue
		}
		x := high.Tasks[name]
		r := run.TaskResult{Task: name, Policy: s.Policy, Metric: t.Metric, Score: run.ScoreOf(t.Metric, cells[name]), TTFT: mix(t.TTFT, x.TTFT), ITL: mix(t.ITL, x.ITL),
			KVHeld: mixedBytes(t.KVHeld, x.KVHeld, w), KVRead: mix(t.KVRead, x.KVRead)}
		s.Tasks[name], tasks = r, append(tasks, r)
		s.N, s.Failed = s.N+r.N, s.Failed+r.Failed
	}
	if low.Score != nil && len(tasks) > 0 {
		m := meanOf(tasks)
		s.Score, s.StdErr = &m.Score, m.StdErr
	}
	s.TTFT, s.ITL, s.KVRead = mix(low.TTFT, high.TTFT), mix(low.ITL, high.ITL), mix(low.KVRead, high.KVRead)
	s.KVHeld, s.KVMean, s.KVPeak = mixedBytes(low.KVHeld, high.KVHeld, w), mixedBytes(low.KVMean, high.KVMean, w), nil
	return s
}

// copyOf is a series without its number, label and differences, which are those of another group.
func copyOf(s *Series, weight float64) *Series {
	c := *s
	c.Number, c.Label, c.Diff, c.ValueDiffs, c.Values, c.Replay, c.TTFTMean = 0, "", nil, nil, nil, nil, 0
	c.Between = []PolicyPart{{s.Policy, weight}}
	return &c
}

// mixed is a sample's score; nil where one failed and failures do not count as 0.
func mixed(a, b *float64, w float64, failuresCount bool) *float64 {
	var none float64
	if a == nil && b == nil || (a == nil || b == nil) && !failuresCount {
		return nil
	}
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	v := (1-w)*(*a) + w*(*b)
	return &v
}

func mixedBytes(a, b map[string]int64, w float64) map[string]int64 {
	out := map[string]int64{}
	for place, n := range a {
		out[place] += int64(math.Round((1 - w) * float64(n)))
	}
	for place, n := range b {
		out[place] += int64(math.Round(w * float64(n)))
	}
	return out
}

// budgetOf is what a spec says of how much is kept or read, or the whole spec.
func budgetOf(spec string) string {
	_, params, _ := strings.Cut(spec, ":")
	var out []string
	for _, p := range strings.Split(params, ",") {
		if p != "" && isBudget(spec, p) {
			out = append(out, p)
		}
	}
	if out == nil {
		return spec
	}
	return strings.Join(out, ",")
}

func percentText(share float64) string {
	return strconv.FormatFloat(100*share, 'g', 3, 64) + " %"
}
