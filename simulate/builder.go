package simulate

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// builder collects an experiment's rows.
type builder struct {
	id string
	*settings
	p        P
	rows     []Row
	recorded *ScoreTrace // that parameter trace names; nil = none
}

// target is a value that a paper prints.
type target struct {
	Key, ID, Series, Metric, Unit, Relation, Role, Along string
	X                                                    map[string]any
	Value                                                float64
	ValueHigh                                            *float64 `json:"value_high"`
	Tolerance                                            float64
	Order                                                []string
}

//go:embed data/targets.json
var targetsText []byte

var targets = sync.OnceValue(func() map[string]target {
	var doc struct{ Targets []target }
	if err := json.Unmarshal(targetsText, &doc); err != nil {
		panic("simulate: data/targets.json: " + err.Error())
	}
	out := map[string]target{}
	for _, t := range doc.Targets {
		out[t.Key] = t
	}
	return out
})

// X makes a row's x of key, value pairs.
func X(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v := pairs[i+1]
		if n, ok := v.(int); ok {
			v = float64(n)
		}
		out[pairs[i].(string)] = v
	}
	return out
}

// row adds a value that no paper prints.
func (b *builder) row(kind Kind, series, metric, unit string, x map[string]any, v float64) {
	b.rows = append(b.rows, Row{Series: series, X: x, Metric: metric, Unit: unit, Value: v, Kind: kind, Source: "modelled"})
}

// exact adds a closed form, model a prediction.
func (b *builder) exact(series, metric, unit string, x map[string]any, v float64) {
	b.row(ClosedForm, series, metric, unit, x, v)
}

func (b *builder) model(series, metric, unit string, x map[string]any, v float64) {
	b.row(Predicted, series, metric, unit, x, v)
}

// opts of a target's row.
type opts struct {
	x      map[string]any // more keys than the target's
	varied []string       // parameters of the band
	adjust func(p P) P    // keeps a corner of the band consistent with what was calibrated
	reason string         // why it misses, if it does
}

// paper adds a value that a paper prints, under the target's series, x, metric and unit. It is left out where the caller has set
// an axis to other values.
func (b *builder) paper(key string, o opts, f func(p P) float64) {
	t, ok := targets()[key]
	if !ok {
		panic("simulate: no target " + key)
	}
	x := map[string]any{}
	for k, v := range t.X {
		x[k] = v
	}
	for k, v := range o.x {
		x[k] = v
	}
	for k, v := range x {
		if list, ok := b.axes[k]; ok && b.set[k] && !slices.Contains(list, v) {
			return
		}
	}
	v, paper := f(b.p), t.Value
	r := Row{Series: t.Series, X: x, Metric: t.Metric, Unit: t.Unit, Value: v, Paper: &paper, Kind: Predicted, Source: "modelled", Target: key}
	if paper != 0 {
		e := v/paper - 1
		r.Error = &e
	}
	switch t.Role {
	case "closed_form":
		r.Kind = ClosedForm
	case "calibrate":
		r.Kind = Calibrated
	}
	if len(o.varied) > 0 && r.Kind == Predicted {
		b.band(&r, o, f)
	}
	if r.Kind != ClosedForm && !t.holds(r) {
		r.Reason = o.reason
	}
	b.rows = append(b.rows, r)
}

// band widens a prediction by its parameters' ranges: the least and the most where each is at an end of its range, in every
// combination. Where that is wider than a factor of 2 it says nothing: then some stay where they are, so that the band of the
// others is the widest below that; a row says which were varied.
func (b *builder) band(r *Row, o opts, f func(p P) float64) {
	names := slices.DeleteFunc(slices.Clone(o.varied), func(name string) bool { return b.set[name] })
	slices.Sort(names)
	values := b.grid(names, o, f)
	best := 1.0
	for subset := 1; subset < 1<<len(names); subset++ {
		low, high := r.Value, r.Value
		for at, v := range values {
			if within(at, subset) {
				low, high = min(low, v), max(high, v)
			}
		}
		if !(low > 0) || high > 2*low || high/low <= best {
			continue
		}
		best = high / low
		l, h := low, high
		r.Kind, r.Low, r.High, r.Varied = Sensitivity, &l, &h, nil
		for i, name := range names {
			if subset>>i&1 == 1 {
				r.Varied = append(r.Varied, name)
			}
		}
	}
}

// within says whether a place of the grid moves no parameter outside of a subset.
func within(place, subset int) bool {
	for ; place > 0; place, subset = place/3, subset>>1 {
		if place%3 > 0 && subset&1 == 0 {
			return false
		}
	}
	return true
}

// grid is f with every parameter where it is, at the low or at the high end: place by place, base 3.
func (b *builder) grid(names []string, o opts, f func(p P) float64) []float64 {
	n := 1
	for range names {
		n *= 3
	}
	out := make([]float64, n)
	for at := range out {
		p, rest := b.p, at
		for _, name := range names {
			v := b.params[name]
			if v.Low == nil || v.High == nil {
				panic("simulate: " + b.id + ": " + name + " has no range")
			}
			if end := rest % 3; end > 0 {
				p = p.with(name, []float64{*v.Low, *v.High}[end-1])
			}
			rest /= 3
		}
		if o.adjust != nil && at > 0 {
			p = o.adjust(p)
		}
		out[at] = f(p)
	}
	return out
}

// holds says whether a row is what the paper prints, within 10 % or its band.
func (t target) holds(r Row) bool {
	switch t.Relation {
	case ">":
		return r.Value > t.Value
	case "<":
		return r.Value < t.Value
	case "within":
		return r.Value >= t.Value && r.Value <= *t.ValueHigh
	case "points":
		return math.Abs(r.Value-t.Value) <= 3
	case "exact":
		return math.Abs(r.Value-t.Value) <= max(t.Tolerance, 1e-9*math.Abs(t.Value))
	case "report":
		return math.Abs(r.Value-t.Value) <= 0.1*math.Abs(t.Value)
	}
	return math.Abs(r.Value-t.Value) <= 0.1*math.Abs(t.Value) || r.Kind == Sensitivity && *r.Low <= t.Value && t.Value <= *r.High
}

// near reports whether a row is within a tenth of the value that a paper prints, or as near as it has to be where that is less.
func (t target) near(r Row) bool {
	return math.Abs(r.Value-t.Value) <= 0.1*math.Abs(t.Value) && (t.Relation != "exact" || t.holds(r))
}

// bounds reports whether a paper prints a limit or a range, not a value.
func (t target) bounds() bool {
	return t.Relation == ">" || t.Relation == "<" || t.Relation == "within"
}

// settle checks a finished row.
func (b *builder) settle(r *Row) error {
	if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
		return fmt.Errorf("%s %s is %v: %s may not be that small or large", r.Series, r.Metric, r.Value, strings.Join(b.given(), ", "))
	}
	if r.X == nil {
		return errors.New("a row without x")
	}
	return nil
}

// given are the keys that the caller has set.
func (b *builder) given() (keys []string) {
	for k := range b.set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
