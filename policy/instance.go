package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
)

// instanceJSON is the file that `infer store place --instance` reads. Pointers tell what is missing from what is zero.
type instanceJSON struct {
	Tiers []struct {
		Name      *string  `json:"name"`
		Capacity  *float64 `json:"capacity_bytes"` // null: no limit
		BytesPerS *float64 `json:"bytes_per_s"`
	} `json:"tiers"`
	Methods  *[]string     `json:"methods"`
	Keeps    *[]float64    `json:"keeps"`
	Alpha    *float64      `json:"alpha"`
	Contexts *[]contextDoc `json:"contexts"`
}

type contextDoc struct {
	ID      *string                        `json:"id"`
	Bytes   *float64                       `json:"bytes"`
	Freq    *float64                       `json:"freq"`
	Quality map[string]map[string]*float64 `json:"quality"`
}

// ReadInstance reads a placement instance from JSON, strictly: unknown and repeated names, and anything after the object, are
// errors. Errors wrap [ErrInstance].
func ReadInstance(data []byte) (*Instance, error) {
	var doc *instanceJSON
	if err := json.Unmarshal(data, &doc, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("policy: instance: %w: %w", err, ErrInstance)
	}
	if doc == nil || doc.Methods == nil || doc.Keeps == nil || doc.Alpha == nil || doc.Contexts == nil {
		return nil, fmt.Errorf("policy: instance: want an object with tiers, methods, keeps, alpha and contexts: %w", ErrInstance)
	}
	in := &Instance{Alpha: *doc.Alpha, Methods: *doc.Methods, Keeps: *doc.Keeps}
	for i, t := range doc.Tiers {
		if t.Name == nil || t.BytesPerS == nil {
			return nil, fmt.Errorf("policy: instance: tier %d: want name, capacity_bytes and bytes_per_s: %w", i, ErrInstance)
		}
		tier := PlaceTier{Name: *t.Name, CapacityBytes: math.Inf(1), BytesPerS: *t.BytesPerS}
		if t.Capacity != nil {
			tier.CapacityBytes = *t.Capacity
		}
		in.Tiers = append(in.Tiers, tier)
	}
	for i, d := range *doc.Contexts {
		if d.ID == nil || d.Bytes == nil || d.Freq == nil {
			return nil, fmt.Errorf("policy: instance: context %d: want id, bytes, freq and quality: %w", i, ErrInstance)
		}
		c := PlaceContext{ID: *d.ID, Bytes: *d.Bytes, Freq: *d.Freq}
		var err error
		if c.Options, err = d.options(in); err != nil {
			return nil, err
		}
		in.Contexts = append(in.Contexts, c)
	}
	return in, in.check()
}

// options reads the quality of every configuration; the keys of keeps are compared as numbers.
func (d contextDoc) options(in *Instance) (out []Option, err error) {
	fail := func(what string, args ...any) error {
		return fmt.Errorf("policy: instance: context %q: %s: %w", *d.ID, fmt.Sprintf(what, args...), ErrInstance)
	}
	for method, keeps := range d.Quality {
		if !slices.Contains(in.Methods, method) {
			return nil, fail("quality of %q, which is not among methods", method)
		}
		for text, q := range keeps {
			k, err := strconv.ParseFloat(text, 64)
			if err != nil || !slices.Contains(in.Keeps, k) {
				return nil, fail("quality of %s at keep %q, which is not among keeps", method, text)
			}
			if q == nil {
				return nil, fail("quality of %s at keep %s is null, want a number", method, text)
			}
			out = append(out, Option{Config: Config{method, k}, Quality: *q})
		}
	}
	if len(out) != len(in.Methods)*len(in.Keeps) {
		return nil, fail("quality of %d configurations, want one for each of %d methods and %d keeps", len(out), len(in.Methods), len(in.Keeps))
	}
	// Maps have no order; that of methods and keeps decides ties.
	slices.SortFunc(out, func(a, b Option) int {
		return cmp.Or(slices.Index(in.Methods, a.Method)-slices.Index(in.Methods, b.Method), slices.Index(in.Keeps, a.Keep)-slices.Index(in.Keeps, b.Keep))
	})
	for i, o := range out {
		if i > 0 && o.Config == out[i-1].Config {
			return nil, fail("quality of %s at keep %g is given twice", o.Method, o.Keep)
		}
	}
	return out, nil
}

// check refuses what no placement can work with. Errors wrap [ErrInstance].
func (in *Instance) check() error {
	fail := func(what string, args ...any) error {
		return fmt.Errorf("policy: instance: %s: %w", fmt.Sprintf(what, args...), ErrInstance)
	}
	if len(in.Tiers) == 0 {
		return fail("no tier, want at least one")
	}
	if !finite(in.Alpha) || in.Alpha < 0 {
		return fail("alpha %g, want 0 or more", in.Alpha)
	}
	names := map[string]bool{}
	for _, t := range in.Tiers {
		switch {
		case t.Name == "" || names[t.Name]:
			return fail("tier %q: want a name, and each once", t.Name)
		case math.IsNaN(t.CapacityBytes) || t.CapacityBytes < 0:
			return fail("tier %s: capacity_bytes %g, want 0 or more, or null", t.Name, t.CapacityBytes)
		case !finite(t.BytesPerS) || t.BytesPerS <= 0:
			return fail("tier %s: bytes_per_s %g, want above 0", t.Name, t.BytesPerS)
		}
		names[t.Name] = true
	}
	for i, m := range in.Methods {
		if !compresses(m) || slices.Contains(in.Methods[:i], m) {
			return fail("method %q: want policies that act after the prompt, each once (see 'infer policies')", m)
		}
	}
	for i, k := range in.Keeps {
		if !(k > 0 && k <= 1) || slices.Contains(in.Keeps[:i], k) {
			return fail("keep %g: want shares above 0 and up to 1, each once", k)
		}
	}
	return in.checkContexts(fail)
}

func (in *Instance) checkContexts(fail func(string, ...any) error) error {
	ids := map[string]bool{}
	for _, c := range in.Contexts {
		switch {
		case c.ID == "" || ids[c.ID]:
			return fail("context %q: want an id, and each once", c.ID)
		case !finite(c.Bytes) || c.Bytes < 0:
			return fail("context %q: bytes %g, want 0 or more", c.ID, c.Bytes)
		case !finite(c.Freq) || c.Freq < 0:
			return fail("context %q: freq %g, want 0 or more", c.ID, c.Freq)
		}
		ids[c.ID] = true
		for _, o := range c.Options {
			if !finite(o.Quality) {
				return fail("context %q: quality of %s at keep %g is %g", c.ID, o.Method, o.Keep, o.Quality)
			}
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
