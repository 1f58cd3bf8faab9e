package simulate

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"terrace/internal/nearest"
)

// ErrArgument: an unknown experiment or key, or a value out of range.
var ErrArgument = errors.New("bad argument of a simulation")

var errLinks = errors.New("links: want direct or store_forward")

//go:embed hardware/*.toml
var hardwareFiles embed.FS

// value is a parameter as a hardware file has it.
type value struct {
	Value  any      `toml:"value"`
	Unit   string   `toml:"unit"`
	Source string   `toml:"source"`
	Low    *float64 `toml:"low"`
	High   *float64 `toml:"high"`
	Note   string   `toml:"note"`
}

// hardware reads a file of the embedded folder.
func hardware(name string) map[string]value {
	text, err := hardwareFiles.ReadFile("hardware/" + name + ".toml")
	if err != nil {
		panic(err) // embedded
	}
	var out map[string]value
	if err := toml.Unmarshal(text, &out); err != nil {
		panic(fmt.Sprintf("simulate: hardware/%s.toml: %v", name, err))
	}
	return out
}

// pick takes some parameters of a file; without names, all.
func pick(file string, names ...string) map[string]value {
	all := hardware(file)
	if len(names) == 0 {
		return all
	}
	out := map[string]value{}
	for _, n := range names {
		v, ok := all[n]
		if !ok {
			panic("simulate: hardware/" + file + ".toml has no " + n)
		}
		out[n] = v
	}
	return out
}

// P are the numbers of one evaluation.
type P map[string]float64

func (p P) with(name string, v float64) P {
	out := make(P, len(p))
	for k, x := range p {
		out[k] = x
	}
	out[name] = v
	return out
}

// axes are the values that keys of x run over; values are float64 or string.
type axes map[string][]any

func (a axes) numbers(key string) (list []float64) {
	for _, v := range a[key] {
		if f, ok := v.(float64); ok {
			list = append(list, f)
		}
	}
	return list
}

func (a axes) texts(key string) (list []string) {
	for _, v := range a[key] {
		if s, ok := v.(string); ok {
			list = append(list, s)
		}
	}
	return list
}

func nums(list ...float64) (out []any) {
	for _, v := range list {
		out = append(out, v)
	}
	return out
}

func words(list ...string) (out []any) {
	for _, v := range list {
		out = append(out, v)
	}
	return out
}

// settings are an experiment's parameters and axes after --set.
type settings struct {
	params map[string]value
	axes   axes
	set    map[string]bool // given by the caller
	picked []xPick
}

// xPick leaves of an experiment's rows those whose x has one of some values under a key that is no parameter.
type xPick struct{ key, values string }

// rows are those that are left of a list, which all have some key that the caller gave.
func (p xPick) rows(id string, s *settings, list []Row) ([]Row, error) {
	var left []Row
	has, known := false, map[string]bool{}
	for _, r := range list {
		v, ok := r.X[p.key]
		if !ok {
			continue
		}
		has, known[fmt.Sprint(v)] = true, true
		if slices.ContainsFunc(strings.Split(p.values, "/"), func(text string) bool {
			f, err := parseNumber(text)
			return text == fmt.Sprint(v) || err == nil && f == v
		}) {
			left = append(left, r)
		}
	}
	switch {
	case !has:
		keys := s.keys()
		return nil, fmt.Errorf("simulate: %s: no parameter %q%s: it has %s: %w", id, p.key, nearest.Hint(p.key, keys), strings.Join(keys, ", "), ErrArgument)
	case left == nil:
		return nil, fmt.Errorf("simulate: %s: no row has %s=%s: want some of %s: %w", id, p.key, p.values, strings.Join(slices.Sorted(maps.Keys(known)), "/"), ErrArgument)
	}
	return left, nil
}

// numbers are the parameters that are numbers.
func (s *settings) numbers() P {
	out := P{}
	for name, v := range s.params {
		if f, ok := number(v.Value); ok {
			out[name] = f
		}
	}
	return out
}

func number(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case int64:
		return float64(x), true
	}
	return 0, false
}

func (s *settings) text(name string) string {
	t, _ := s.params[name].Value.(string)
	return t
}

// apply takes one key=value.
func (s *settings) apply(id, item string) error {
	key, text, ok := strings.Cut(item, "=")
	if !ok || key == "" || text == "" {
		return fmt.Errorf("simulate: %s: %q: want key=value: %w", id, item, ErrArgument)
	}
	if list, ok := s.axes[key]; ok {
		return s.applyAxis(id, key, text, list)
	}
	p, ok := s.params[key]
	if !ok {
		s.picked = append(s.picked, xPick{key, text})
		return nil
	}
	if _, isText := p.Value.(string); isText {
		p.Value = text
	} else {
		f, err := parseNumber(text)
		if err != nil || p.Unit == "fraction" && f > 1 {
			return fmt.Errorf("simulate: %s: %s=%s: want a number of %s, 0 or more: %w", id, key, text, p.Unit, ErrArgument)
		}
		p.Value = f
	}
	s.params[key] = p
	s.set[key] = true
	return nil
}

func (s *settings) applyAxis(id, key, text string, list []any) error {
	var out []any
	parts := strings.Split(text, "/")
	if len(parts) > 1000 {
		return fmt.Errorf("simulate: %s: %s has %d values, want at most 1000: %w", id, key, len(parts), ErrArgument)
	}
	for _, part := range parts {
		if _, isText := list[0].(string); isText {
			out = append(out, part)
			continue
		}
		f, err := parseNumber(part)
		if err != nil || f > 1e12 {
			return fmt.Errorf("simulate: %s: %s=%s: want numbers, 0 to 1e12: %w", id, key, text, ErrArgument)
		}
		out = append(out, f)
	}
	s.axes[key] = out
	s.set[key] = true
	return nil
}

func parseNumber(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && !(f >= 0 && f <= math.MaxFloat64) {
		err = strconv.ErrRange
	}
	return f, err
}

func (s *settings) keys() (out []string) {
	for k := range s.params {
		out = append(out, k)
	}
	for k := range s.axes {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
