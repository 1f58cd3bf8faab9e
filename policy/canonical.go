package policy

import (
	"slices"
	"strconv"
	"strings"

	"terrace/internal/units"
)

// Canonical is one text for all spellings of a specification: parameters in the order of their declaration, without those that are given
// their default, numbers in one form (50% is 0.5, 1k is 1024). Parse reads it back to an equal policy.
func (s *Spec) Canonical() string {
	texts := make([]string, len(s.terms))
	for i, t := range s.terms {
		texts[i] = t.canonical()
	}
	return strings.Join(texts, "+")
}

func (t *term) canonical() string {
	var chain, params []string
	for at := t; at != nil; at = at.args.inner {
		if at != t {
			chain = append(chain, at.entry.info.Name)
		}
		for _, p := range at.entry.info.Params {
			if v, ok := at.args.given[p.Name]; ok && plainValue(v) != plainValue(p.Default) {
				params = append(params, p.Name+"="+plainValue(v))
			}
		}
	}
	info := t.entry.info
	if inner := strings.Join(chain, "/"); inner != info.Wraps {
		params = slices.Insert(params, 0, info.innerKey()+"="+inner)
	}
	if len(params) == 0 {
		return info.Name
	}
	return info.Name + ":" + strings.Join(params, ",")
}

// plainValue is a parameter's value in one form.
func plainValue(v string) string {
	parts := strings.Split(v, "/")
	for i, p := range parts {
		number, percent := strings.CutSuffix(p, "%")
		if f, err := strconv.ParseFloat(number, 64); err == nil {
			if percent {
				if f == 100 { // a bare 1 is a count
					continue
				}
				f /= 100
			}
			parts[i] = strconv.FormatFloat(f, 'g', 12, 64)
		} else if n, err := units.ParseCount(p); err == nil {
			parts[i] = strconv.Itoa(n)
		} else if n, err := units.ParseBytes(p); err == nil {
			parts[i] = strconv.FormatInt(n, 10) + "B"
		}
	}
	return strings.Join(parts, "/")
}
