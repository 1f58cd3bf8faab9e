package simulate

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"terrace/internal/nearest"
)

// experiment is one row of the list of experiments.
type experiment struct {
	id     string
	title  string
	params map[string]value
	axes   axes
	on     []string // targets that parameters were fitted on
	uses   []string // packages of the product that run for it
	run    func(b *builder) error
}

// registrar takes an experiment into the registry.
type registrar func(*experiment)

// registry is every experiment by ID. It is made at first use, because it reads the hardware files, and every start of the binary
// would pay for that.
var registry = sync.OnceValue(func() map[string]*experiment {
	all := map[string]*experiment{}
	for _, runs := range []func(registrar){hillRuns, instRuns, slimRuns, evicRuns, fleetRuns, expertRuns, accuracyRuns} {
		runs(func(e *experiment) {
			if all[e.id] != nil {
				panic("simulate: " + e.id + " twice")
			}
			all[e.id] = e
		})
	}
	return all
})

// Listed is an experiment's ID and title.
type Listed struct{ ID, Title string }

// List is every experiment, by ID.
func List() (out []Listed) {
	for id, e := range registry() {
		out = append(out, Listed{id, e.title})
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// find is the experiment that answers to an ID: its own, or that of one of its figures (a/b/c has a, paper-b and paper-c).
func find(id string) *experiment {
	if e := registry()[id]; e != nil {
		return e
	}
	for _, e := range registry() {
		parts := strings.Split(e.id, "/")
		paper, _, _ := strings.Cut(e.id, "-")
		for i, part := range parts {
			if i > 0 {
				part = paper + "-" + part
			}
			if len(parts) > 1 && part == id {
				return e
			}
		}
	}
	return nil
}

// Run answers an experiment under some key=value settings. Errors wrap ErrArgument.
func Run(id string, sets []string) (*Result, error) {
	e := find(id)
	if e == nil {
		var known []string
		for _, l := range List() {
			known = append(known, l.ID)
		}
		return nil, fmt.Errorf("simulate: no experiment %q%s: infer simulate --list has them: %w", id, nearest.Hint(id, known), ErrArgument)
	}
	s := &settings{params: map[string]value{"seed": {Value: 1.0, Unit: "count", Source: "reading", Note: "of synthetic traces and arrivals"}}, axes: axes{}, set: map[string]bool{}}
	for k, v := range e.params {
		s.params[k] = v
	}
	for k, v := range e.axes {
		s.axes[k] = v
	}
	for _, item := range sets {
		if err := s.apply(id, item); err != nil {
			return nil, err
		}
	}
	b := &builder{id: id, settings: s, p: s.numbers()}
	if err := e.run(b); err != nil {
		return nil, fmt.Errorf("simulate: %s: %w: %w", id, err, ErrArgument)
	}
	out := &Result{ID: id, Rows: b.rows, Accuracy: accuracies()[e.id], CalibratedOn: slices.Clone(e.on), Uses: slices.Clone(e.uses), Parameters: map[string]Parameter{}}
	if out.Rows == nil {
		out.Rows = []Row{}
	}
	if out.CalibratedOn == nil {
		out.CalibratedOn = []string{}
	}
	if out.Uses == nil {
		out.Uses = []string{}
	}
	for name, v := range s.params {
		p := Parameter(v)
		if f, ok := number(v.Value); ok && (p.Low != nil && f < *p.Low || p.High != nil && f > *p.High) {
			p.Low, p.High = nil, nil // set outside of the range
		}
		out.Parameters[name] = p
	}
	for _, p := range s.picked {
		var err error
		if out.Rows, err = p.rows(id, s, out.Rows); err != nil {
			return nil, err
		}
	}
	sortRows(out.Rows)
	for i := range out.Rows {
		if err := b.settle(&out.Rows[i]); err != nil {
			return nil, fmt.Errorf("simulate: %s: %w: %w", id, err, ErrArgument)
		}
	}
	return out, nil
}

// sortRows brings rows in an order of their own: series, metric, x, then the target.
func sortRows(rows []Row) {
	keys := make(map[*Row]string, len(rows))
	key := func(r *Row) string {
		if keys[r] == "" {
			keys[r] = r.Series + "\x00" + r.Metric + "\x00" + xKey(r.X) + "\x00" + r.Target
		}
		return keys[r]
	}
	order := make([]*Row, len(rows))
	for i := range rows {
		order[i] = &rows[i]
	}
	slices.SortStableFunc(order, func(a, b *Row) int { return strings.Compare(key(a), key(b)) })
	sorted := make([]Row, len(rows))
	for i, r := range order {
		sorted[i] = *r
	}
	copy(rows, sorted)
}

// xKey is x as text that sorts numbers by size.
func xKey(x map[string]any) string {
	var names []string
	for k := range x {
		names = append(names, k)
	}
	slices.Sort(names)
	var out strings.Builder
	for _, k := range names {
		if f, ok := x[k].(float64); ok {
			fmt.Fprintf(&out, "%s %030.9f ", k, f)
		} else {
			fmt.Fprintf(&out, "%s %v ", k, x[k])
		}
	}
	return out.String()
}
