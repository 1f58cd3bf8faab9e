package hf

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxFaults bounds how many faults of one folder are reported.
const maxFaults = 4

// faults collects what is wrong with a folder; figures read after a fault are zero and are not used.
type faults struct{ list []error }

func (f *faults) add(format string, args ...any) {
	if len(f.list) < maxFaults {
		f.list = append(f.list, fmt.Errorf(format, args...))
	}
}

// Error joins them on one line, as a command prints them.
func (f *faults) Error() string {
	texts := make([]string, len(f.list))
	for i, err := range f.list {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap lets errors.Is see each.
func (f *faults) Unwrap() []error { return f.list }

// fields is one JSON object of a configuration with typed, range-checked access. A null counts as absent.
type fields struct {
	where  string // "config.json", "config.json: rope_scaling"
	values map[string]any
	faults *faults
}

func (f fields) has(key string) bool { return f.values[key] != nil }

// null reports whether the key is there and says null.
func (f fields) null(key string) bool {
	v, given := f.values[key]
	return given && v == nil
}

// wrong records that a key holds something else than wanted.
func (f fields) wrong(key, want string) {
	got, err := json.Marshal(f.values[key])
	if err != nil || len(got) > 60 {
		got = append(got[:min(len(got), 60)], "…"...)
	}
	if _, given := f.values[key]; !given {
		got = []byte("missing")
	}
	f.faults.add("%s: %s is %s, want %s: %w", f.where, key, got, want, ErrConfig)
}

// int reads a required integer in [lo, hi].
func (f fields) int(key string, lo, hi int) int {
	want := fmt.Sprintf("an integer from %d to %d", lo, hi)
	num, ok := f.values[key].(json.Number)
	if !ok {
		f.wrong(key, want)
		return 0
	}
	n, err := strconv.ParseInt(num.String(), 10, 64)
	if err != nil || n < int64(lo) || n > int64(hi) {
		f.wrong(key, want)
		return 0
	}
	return int(n)
}

// intOr reads an optional integer in [lo, hi].
func (f fields) intOr(key string, def, lo, hi int) int {
	if !f.has(key) {
		return def
	}
	return f.int(key, lo, hi)
}

// period reads an optional integer in [1, hi] that later code divides by: 1 after a fault.
func (f fields) period(key string, def, hi int) int { return max(1, f.intOr(key, def, 1, hi)) }

// intUnless reads an integer in [1, hi] that is required unless there is a default above 0.
func (f fields) intUnless(key string, def, hi int) int {
	if def > 0 {
		return f.intOr(key, def, 1, hi)
	}
	return f.int(key, 1, hi)
}

// floatOr reads an optional finite number in [lo, hi].
func (f fields) floatOr(key string, def, lo, hi float64) float64 {
	if !f.has(key) {
		return def
	}
	num, _ := f.values[key].(json.Number)
	x, err := strconv.ParseFloat(num.String(), 64)
	if err != nil || math.IsNaN(x) || x < lo || x > hi {
		f.wrong(key, fmt.Sprintf("a number from %g to %g", lo, hi))
		return def
	}
	return x
}

// float reads a required finite number in [lo, hi].
func (f fields) float(key string, lo, hi float64) float64 {
	if !f.has(key) {
		f.wrong(key, fmt.Sprintf("a number from %g to %g", lo, hi))
		return 0
	}
	return f.floatOr(key, 0, lo, hi)
}

func (f fields) boolOr(key string, def bool) bool {
	if !f.has(key) {
		return def
	}
	b, ok := f.values[key].(bool)
	if !ok {
		f.wrong(key, "true or false")
	}
	return b
}

func (f fields) stringOr(key, def string) string {
	if !f.has(key) {
		return def
	}
	s, ok := f.values[key].(string)
	if !ok {
		f.wrong(key, "a string")
	}
	return s
}

// choice reads an optional string that must be one of a map's keys and returns what it stands for.
func (f fields) choice(key, def string, known map[string]string) string {
	name := f.stringOr(key, def)
	v, ok := known[name]
	if !ok {
		names := make([]string, 0, len(known))
		for k := range known {
			names = append(names, k)
		}
		slices.Sort(names)
		f.wrong(key, "one of "+strings.Join(names, ", "))
	}
	return v
}

// object returns the object under a key; absent gives an empty one and false.
func (f fields) object(key string) (fields, bool) {
	sub := fields{where: f.where + ": " + key, faults: f.faults}
	if !f.has(key) {
		return sub, false
	}
	m, ok := f.values[key].(map[string]any)
	if !ok {
		f.wrong(key, "an object")
		return sub, false
	}
	sub.values = m
	return sub, true
}

// list returns the array under a key, which must have n elements; nil if absent.
func (f fields) list(key string, n int) []any {
	if !f.has(key) {
		return nil
	}
	list, ok := f.values[key].([]any)
	if !ok || len(list) != n {
		f.wrong(key, fmt.Sprintf("a list of %d", n))
		return nil
	}
	return list
}

// numbers reads a required list of n numbers in [lo, hi].
func (f fields) numbers(key string, n int, lo, hi float64) []float32 {
	if !f.has(key) {
		f.wrong(key, fmt.Sprintf("a list of %d numbers", n))
		return nil
	}
	out := make([]float32, 0, n)
	for _, v := range f.list(key, n) {
		num, _ := v.(json.Number)
		x, err := strconv.ParseFloat(num.String(), 64)
		if err != nil || x < lo || x > hi {
			f.wrong(key, fmt.Sprintf("numbers from %g to %g", lo, hi))
			return nil
		}
		out = append(out, float32(x))
	}
	return out
}
