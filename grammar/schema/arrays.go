package schema

import (
	"fmt"
	"slices"

	"terrace/grammar"
)

// array is a set of arrays.
type array struct {
	first    []formula // of the first items
	rest     formula   // of the others
	min, max int       // items; max < 0: no limit
	contains []contained
	unique   bool
}

// contained: from min to max items satisfy is.
type contained struct {
	is       formula
	min, max int
}

func allArrays() array { return array{rest: always, max: -1} }

func (a *array) item(i int) formula {
	if i < len(a.first) {
		return a.first[i]
	}
	return a.rest
}

func leastMax(a, b int) int {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

func (n *normaliser) bothArrays(a, b array) (array, bool) {
	out := array{rest: n.and(a.rest, b.rest), min: max(a.min, b.min), max: leastMax(a.max, b.max), contains: slices.Concat(a.contains, b.contains), unique: a.unique || b.unique}
	for i := range max(len(a.first), len(b.first)) {
		out.first = append(out.first, n.and(a.item(i), b.item(i)))
	}
	return out.tidy()
}

// tidy cuts an array at the first item that cannot be; false where nothing is left.
func (a array) tidy() (array, bool) {
	for i, f := range a.first {
		if f == never {
			a.first, a.max = a.first[:i], leastMax(a.max, i)
			break
		}
	}
	if a.rest == never {
		a.max = leastMax(a.max, len(a.first))
	}
	if a.max >= 0 && len(a.first) > a.max {
		a.first = a.first[:a.max]
	}
	if a.max >= 0 && a.max <= 1 {
		a.unique = false
	}
	return a, a.max < 0 || a.min <= a.max
}

// notArray are the arrays outside of a.
func (n *normaliser) notArray(a array) (out []array, err error) {
	if a.unique {
		return nil, fmt.Errorf("uniqueItems under not: %w", grammar.ErrUnsupported)
	}
	add := func(b array) {
		if b, ok := b.tidy(); ok {
			out = append(out, b)
		}
	}
	if a.min > 0 {
		b := allArrays()
		b.max = a.min - 1
		add(b)
	}
	if a.max >= 0 {
		b := allArrays()
		b.min = a.max + 1
		add(b)
	}
	for i, f := range a.first {
		b := allArrays()
		b.min = i + 1
		for range i {
			b.first = append(b.first, always)
		}
		b.first = append(b.first, n.not(f))
		add(b)
	}
	if a.rest != always && (a.max < 0 || a.max > len(a.first)) {
		b := allArrays()
		if len(a.first) > 0 {
			if a.rest != never {
				return nil, fmt.Errorf("items behind prefixItems under not: %w", grammar.ErrUnsupported)
			}
			b.min = len(a.first) + 1
		} else {
			b.contains = []contained{{n.not(a.rest), 1, -1}}
		}
		add(b)
	}
	for _, c := range a.contains {
		b := allArrays()
		if c.min > 0 {
			b.contains = []contained{{c.is, 0, c.min - 1}}
			add(b)
		}
		if c.max >= 0 {
			b.contains = []contained{{c.is, c.max + 1, -1}}
			add(b)
		}
	}
	return out, nil
}
