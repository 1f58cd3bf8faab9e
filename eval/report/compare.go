package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"terrace/eval"
	"terrace/eval/run"
	"terrace/policy"
)

// Run is a run folder that was read.
type Run struct {
	Name     string // the folder's
	Results  *run.Results
	Outcomes []eval.Outcome
}

// Load reads run folders.
func Load(dirs []string) ([]Run, error) {
	var out []Run
	for _, d := range dirs {
		res, outcomes, err := run.Read(d)
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		out = append(out, Run{Name: filepath.Base(filepath.Clean(d)), Results: res, Outcomes: outcomes})
	}
	return out, nil
}

// Series is one policy of one run: a row of the table, a colour in the charts.
type Series struct {
	Number int    `json:"number"` // within its group, from 1
	Label  string `json:"label"`  // policy, with model and run where they tell series apart
	Policy string `json:"policy"`
	Model  string `json:"model"`
	Run    string `json:"run"`
	// Score is the mean of the tasks' percentages, or the only task's score; nil where tasks cannot be averaged.
	Score  *float64  `json:"score,omitempty"`
	StdErr float64   `json:"stderr"`
	Diff   *Interval `json:"diff,omitempty"` // of Score, from the series that the group is measured against
	N      int       `json:"n"`
	Failed int       `json:"failed"`
	TTFT   float64   `json:"ttft_ms"`
	// TTFTMean is of replays: requests wait for each other, and a mean has the waiting in it.
	TTFTMean float64 `json:"ttft_mean_ms,omitempty"`
	// Replay is what else replays have: end to end, hits by tier, the rate sustained; nil = it is none.
	Replay *run.ReplayResult         `json:"replay,omitempty"`
	ITL    float64                   `json:"itl_ms"`
	KVPeak map[string]int64          `json:"kv_bytes_peak"`
	KVMean map[string]int64          `json:"kv_bytes_mean"`
	KVHeld map[string]int64          `json:"kv_bytes_held"`
	KVRead float64                   `json:"kv_bytes_read"` // by a decode step
	Tasks  map[string]run.TaskResult `json:"tasks"`
	Groups map[string]run.Score      `json:"groups,omitempty"` // means over the kinds of tasks
	Values map[string]float64        `json:"values,omitempty"` // means over tasks of further measures: kl, same_top, …
	Length map[string]run.Score      `json:"length,omitempty"` // means over tasks by length of the sample
	// ValueDiffs are the differences of Values.
	ValueDiffs map[string]*Interval `json:"value_diffs,omitempty"`
	// Between are the policies that a series of [Comparison.AtBytes] is made of; nil: it was run so.
	Between []PolicyPart `json:"between,omitempty"`

	outcomes    []eval.Outcome
	family      string
	canonical   string // the policy, however it is spelled
	fingerprint string // of the model's weights
	run         *Run
}

// PolicyPart is the weight of a policy that was run in a series between two.
type PolicyPart struct {
	Policy string  `json:"policy"`
	Weight float64 `json:"weight"` // of all parts 1
}

// Interval is a difference with its 95 % paired bootstrap interval.
type Interval struct {
	Diff  float64 `json:"diff"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Pairs int     `json:"pairs"` // samples both have

	nats bool // of logarithms of perplexities
}

// Group is what can be compared: the same suite with the same settings and seed.
type Group struct {
	Suite    string      `json:"suite"`
	Apart    string      `json:"apart,omitempty"` // the settings that tell it from other groups of the suite
	Against  string      `json:"against"`         // policy that the others are measured against
	Settings any         `json:"settings"`
	Seed     uint64      `json:"seed"`
	Notes    []string    `json:"notes,omitempty"` // what was not compared, and why
	Metric   eval.Metric `json:"metric"`          // of Series.Score
	Tasks    []string    `json:"tasks"`
	Kinds    []string    `json:"kinds,omitempty"` // of tasks, in order of appearance
	Measures []string    `json:"measures,omitempty"`
	Lengths  []string    `json:"lengths,omitempty"`
	Series   []*Series   `json:"series"`

	key string
}

// Comparison is the whole report.
type Comparison struct {
	Groups []*Group `json:"groups"`
	Runs   []Run    `json:"-"`
}

// Compare joins runs: those of a suite with equal settings form a group, each policy of each run a series in it, measured
// against a policy of the same model, as the runs name it, on the samples whose prompts are equal. ErrNothing where no run has
// that policy; full need not be there.
func Compare(runs []Run, against string) (*Comparison, error) {
	c, found := &Comparison{Runs: runs}, against == Full
	for i := range runs {
		r := &runs[i]
		g := c.group(r)
		for _, p := range r.Results.Policies {
			g.Series = append(g.Series, newSeries(r, p))
		}
		for _, t := range r.Results.Tasks {
			if !slices.Contains(g.Tasks, t.Task) {
				g.Tasks = append(g.Tasks, t.Task)
			}
		}
	}
	c.nameApart()
	for i := range runs {
		if r := &runs[i]; !r.Results.Complete {
			c.group(r).note("run %s is not complete: the same 'infer eval' command goes on with it", r.Name)
		}
	}
	for _, g := range c.Groups {
		g.Against = against
		g.finish()
		found = found || slices.ContainsFunc(g.Series, func(s *Series) bool { return s.canonical == canonical(against) })
	}
	if !found {
		return nil, fmt.Errorf("report: no run has policy %q to compare with: %w", against, ErrNothing)
	}
	return c, nil
}

// Full is the policy that others are measured against unless another is named.
const Full = "full"

func newSeries(r *Run, p run.PolicyResult) *Series {
	m := r.Results.Options.Model
	s := &Series{Policy: p.Policy, Model: filepath.Base(m.Name), fingerprint: m.Fingerprint, run: r, Run: r.Name, N: p.N, Failed: p.Failed, TTFT: p.TTFT, ITL: p.ITL,
		KVPeak: p.KVPeak, KVMean: p.KVMean, KVHeld: p.KVHeld, KVRead: p.KVRead, Score: p.Mean, StdErr: p.StdErr, Tasks: map[string]run.TaskResult{}}
	if p.ReplayResult != nil {
		s.TTFTMean, s.Replay = p.TTFTMean, p.ReplayResult
	}
	for _, t := range r.Results.Tasks {
		if t.Policy == p.Policy {
			s.Tasks[t.Task] = t
		}
	}
	for _, o := range r.Outcomes {
		if o.Policy == p.Policy {
			s.outcomes = append(s.outcomes, o)
		}
	}
	s.family, _, _ = strings.Cut(p.Policy, ":")
	s.canonical = canonical(p.Policy)
	return s
}

// finish names and numbers the series and works out differences.
func (g *Group) finish() {
	g.nameModels()
	models, seen := map[string]bool{}, map[string]int{}
	for _, s := range g.Series {
		models[s.Model] = true
		seen[s.Model+"\x00"+s.canonical]++
	}
	for i, s := range g.Series {
		s.Number, s.Label = i+1, s.Policy
		if len(models) > 1 {
			s.Label = s.Model + " · " + s.Label
		}
		if seen[s.Model+"\x00"+s.canonical] > 1 {
			s.Label += " · " + s.Run
		}
		for _, t := range s.Tasks {
			g.Metric = t.Metric
			if s.Score == nil && len(g.Tasks) == 1 {
				score := t.Score.Score
				s.Score, s.StdErr = &score, t.StdErr
			}
		}
	}
	if len(g.Tasks) > 1 && g.Metric.Kind == eval.Percent {
		g.Metric.Name = "mean of tasks"
	}
	noteBuilds(g)
	g.groupTasks()
	g.measure()
	for _, s := range g.Series {
		g.measureAgainst(s, g.base(s))
	}
}

// measureAgainst fills a series' differences from base, and notes what could not be compared.
func (g *Group) measureAgainst(s, base *Series) {
	if base == s {
		return
	}
	if base == nil {
		g.note("%s: no series of %s with this model and these settings to compare with", s.name(), g.Against)
		return
	}
	d, p := difference(base.outcomes, s.outcomes, g.Metric)
	if s.Score != nil {
		s.Diff = d
	}
	s.ValueDiffs = map[string]*Interval{}
	for _, name := range g.Measures {
		if d := valueDifference(base.outcomes, s.outcomes, name); d != nil {
			s.ValueDiffs[name] = d
		}
	}
	if p.unequal > 0 {
		g.note("%s: %d of its samples have another prompt than in %s: not compared", s.name(), p.unequal, base.name())
	}
	if p.n < pairsMin {
		g.note("%s: %d samples with equal prompts in %s, a difference needs %d", s.name(), p.n, base.name(), pairsMin)
	} else if p.n < max(len(s.outcomes), len(base.outcomes)) {
		g.note("%s: the scores are of %d samples and of %d in %s; the difference is of the %d that both have", s.name(), len(s.outcomes), len(base.outcomes), base.name(), p.n)
	}
	if p.unknown > 0 && p.n >= pairsMin && s.run != base.run { // one run's prompts are its own
		g.note("%s: %d pairs have no hash of the prompt (an older run): paired by task, id and prompt length", s.name(), p.unknown)
	}
}

func (g *Group) note(format string, args ...any) {
	g.Notes = append(g.Notes, fmt.Sprintf(format, args...))
}

// name is the series' number and label, for notes.
func (s *Series) name() string { return fmt.Sprintf("%d (%s)", s.Number, s.Label) }

// canonical is one text for all spellings of a policy; what does not parse (of a later build) is its own.
func canonical(spec string) string {
	p, err := policy.Parse(spec)
	if err != nil {
		return spec
	}
	return p.Canonical()
}

// noteBuilds says where times are of several builds or machines.
func noteBuilds(g *Group) {
	of := map[string][]string{} // runs by build and machine
	for _, s := range g.Series {
		r := s.run.Results
		key := r.Options.Version + ", " + r.Machine.CPU + ", " + r.Machine.Host
		if !slices.Contains(of[key], s.Run) {
			of[key] = append(of[key], s.Run)
		}
	}
	if len(of) < 2 {
		return
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, strings.Join(of[key], ", ")+" ("+key+")")
	}
	g.note("times are not of one build and machine: %s", strings.Join(parts, "; "))
}

// base is the series that another is measured against: of the same model, of the same run if it has one.
func (g *Group) base(of *Series) *Series {
	var found *Series
	for _, s := range g.Series {
		if s.canonical == canonical(g.Against) && s.Model == of.Model && s.fingerprint == of.fingerprint && (found == nil || s.Run == of.Run) {
			found = s
		}
	}
	return found
}

// total is the sum over tiers.
func total(bytes map[string]int64) int64 {
	var sum int64
	for _, b := range bytes {
		sum += b
	}
	return sum
}

// front returns the indices of points that no other beats: least cost, best score; by rising cost. A dearer point is on it where it is
// better by more than noise: than z95 times the standard error of the two scores' difference, taken as independent.
func front(costs, scores, errs []float64, lessIsBetter bool) []int {
	order := make([]int, len(costs))
	for i := range order {
		order[i] = i
	}
	better := func(a, b float64) bool {
		if lessIsBetter {
			return a < b
		}
		return a > b
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if c := cmp.Compare(costs[i], costs[j]); c != 0 {
			return c
		}
		if better(scores[i], scores[j]) {
			return -1
		}
		return 1
	})
	var out []int
	for _, i := range order {
		if len(out) == 0 {
			out = append(out, i)
			continue
		}
		last := out[len(out)-1]
		if better(scores[i], scores[last]) && math.Abs(scores[i]-scores[last]) > z95*math.Hypot(errs[i], errs[last]) {
			out = append(out, i)
		}
	}
	return out
}
