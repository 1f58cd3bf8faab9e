package schema

import (
	"encoding/binary"
	"fmt"
	"slices"

	"terrace/grammar"
)

// formula is the number of a condition on a value: a place of the document, a literal, or a combination. Equal ones have one
// number, so that there are finitely many and recursion ends.
type formula int32

const (
	never formula = iota
	always
)

type condition struct {
	schema  *value    // a schema, or
	literal *value    // the value itself, or
	all     []formula // all of these, or
	not     formula   // not this, where none of the others is set
}

type formulas struct {
	list   []condition
	places map[*value]formula
	lits   map[*value]formula
	ands   map[string]formula
	nots   map[formula]formula
}

const maxFormulas = 100000

func newFormulas() formulas {
	return formulas{list: make([]condition, 2), places: map[*value]formula{}, lits: map[*value]formula{}, ands: map[string]formula{}, nots: map[formula]formula{never: always, always: never}}
}

func (f *formulas) add(c condition) formula {
	f.list = append(f.list, c)
	return formula(len(f.list) - 1)
}

// at is the schema at a place.
func (f *formulas) at(v *value) formula {
	switch {
	case v.kind == 't' || v.kind == '{' && len(v.members) == 0:
		return always
	case v.kind == 'f':
		return never
	}
	id, ok := f.places[v]
	if !ok {
		id = f.add(condition{schema: v})
		f.places[v] = id
	}
	return id
}

// equal is the condition of being a value.
func (f *formulas) equal(v *value) formula {
	id, ok := f.lits[v]
	if !ok {
		id = f.add(condition{literal: v})
		f.lits[v] = id
	}
	return id
}

// and is all of some.
func (f *formulas) and(of ...formula) formula {
	var flat []formula
	for _, x := range of {
		switch {
		case x == always:
		case x != never && f.list[x].all != nil:
			flat = append(flat, f.list[x].all...)
		default:
			flat = append(flat, x)
		}
	}
	slices.Sort(flat)
	flat = slices.Compact(flat)
	for _, x := range flat {
		if n, ok := f.nots[x]; x == never || ok && slices.Contains(flat, n) {
			return never
		}
	}
	switch len(flat) {
	case 0:
		return always
	case 1:
		return flat[0]
	}
	var key []byte
	for _, x := range flat {
		key = binary.LittleEndian.AppendUint32(key, uint32(x))
	}
	id, ok := f.ands[string(key)]
	if !ok {
		id = f.add(condition{all: flat})
		f.ands[string(key)] = id
	}
	return id
}

// not is the opposite.
func (f *formulas) not(x formula) formula {
	if n, ok := f.nots[x]; ok {
		return n
	}
	n := f.add(condition{not: x})
	f.nots[x], f.nots[n] = n, x
	return n
}

func (f *formulas) check() error {
	if len(f.list) > maxFormulas {
		return fmt.Errorf("schema: more than %d conditions: %w", maxFormulas, grammar.ErrTooLarge)
	}
	return nil
}
