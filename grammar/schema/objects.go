package schema

import (
	"fmt"
	"slices"

	"terrace/grammar"
	"terrace/grammar/automaton"
)

// object is a set of objects. A property that has no name here belongs to the first class that has its key; the classes have
// every key, and no key twice.
type object struct {
	props    []property
	index    map[string]int
	classes  []class
	min, max int     // properties; max < 0: no limit
	has      []class // each: at least one property whose key is in it, and none of its names, satisfies it
}

type property struct {
	name     string
	is       formula
	required bool
	late     bool // the schema names it in required only: it comes after those of properties
}

// class is a set of keys (nil: all) and what their values are.
type class struct {
	keys *automaton.DFA
	is   formula
	but  []string // names that are not meant
}

const maxClasses = 64

func allObjects() object { return object{classes: []class{{is: always}}, max: -1} }

func (o *object) find(name string) int {
	if o.index == nil || len(o.index) != len(o.props) {
		o.index = make(map[string]int, len(o.props))
		for i := range o.props {
			o.index[o.props[i].name] = i
		}
	}
	if i, ok := o.index[name]; ok {
		return i
	}
	return -1
}

// of is what the value of a key is.
func (o *object) of(name string) formula {
	if i := o.find(name); i >= 0 {
		return o.props[i].is
	}
	for _, c := range o.classes {
		if c.keys == nil || c.keys.Match(name) {
			return c.is
		}
	}
	return never
}

// set gives a key a condition beside what it has.
func (n *normaliser) set(o *object, name string, is formula, required bool) {
	if i := o.find(name); i >= 0 {
		o.props[i].is, o.props[i].required = n.and(o.props[i].is, is), o.props[i].required || required
		return
	}
	o.props = append(o.props, property{name, n.and(o.of(name), is), required, true})
	o.index[name] = len(o.props) - 1
}

func (n *normaliser) bothObjects(a, b object) (object, bool, error) {
	out := object{min: max(a.min, b.min), max: leastMax(a.max, b.max), has: slices.Concat(a.has, b.has)}
	for _, late := range []bool{false, true} { // in each, the order of a before that of b
		for _, p := range a.props {
			q := property{p.name, n.and(p.is, b.of(p.name)), p.required, p.late}
			i := b.find(p.name)
			if i >= 0 {
				q.required, q.late = q.required || b.props[i].required, q.late && b.props[i].late
			}
			if p.late == late && (q.late || !late) {
				out.props = append(out.props, q)
			}
		}
		for _, p := range b.props {
			i := a.find(p.name)
			switch {
			case p.late != late || i >= 0 && (late || !a.props[i].late):
				continue
			case i < 0:
				out.props = append(out.props, property{p.name, n.and(a.of(p.name), p.is), p.required, p.late})
			default: // a has it late
				out.props = append(out.props, property{p.name, n.and(a.props[i].is, p.is), p.required || a.props[i].required, false})
			}
		}
	}
	for _, c := range a.classes {
		for _, d := range b.classes {
			keys, err := bothKeys(c.keys, d.keys)
			if err != nil {
				return object{}, false, err
			}
			if keys == nil || !keys.Empty() {
				out.classes = append(out.classes, class{keys: keys, is: n.and(c.is, d.is)})
			}
		}
	}
	if len(out.classes) > maxClasses {
		return object{}, false, fmt.Errorf("more than %d kinds of property names: %w", maxClasses, grammar.ErrTooLarge)
	}
	return out, out.possible(), nil
}

func bothKeys(a, b *automaton.DFA) (*automaton.DFA, error) {
	switch {
	case a == nil || a == b:
		return b, nil
	case b == nil:
		return a, nil
	}
	d, err := automaton.Intersect(a, b)
	return d, tooLargeOrNil(err)
}

func tooLargeOrNil(err error) error {
	if err == nil {
		return nil
	}
	return tooLarge(err)
}

// possible is false where a required property can have no value, or counts exclude each other.
func (o *object) possible() bool {
	required, open := 0, false
	for _, p := range o.props {
		if p.required {
			required++
		}
		if p.required && p.is == never {
			return false
		}
	}
	for _, c := range o.classes {
		open = open || c.is != never
	}
	if !open && o.min > 0 {
		can := 0
		for _, p := range o.props {
			if p.is != never {
				can++
			}
		}
		if can < o.min {
			return false
		}
	}
	return o.max < 0 || o.max >= max(o.min, required)
}

// divide splits the classes by a set of keys: those inside satisfy is beside what they did.
func (n *normaliser) divide(o *object, keys *automaton.DFA, is formula) error {
	outside, err := automaton.Complement(keys)
	if err != nil {
		return tooLarge(err)
	}
	var classes []class
	for _, c := range o.classes {
		for i, part := range []*automaton.DFA{keys, outside} {
			both, err := bothKeys(c.keys, part)
			if err != nil {
				return err
			}
			d := class{keys: both, is: c.is}
			if i == 0 {
				d.is = n.and(c.is, is)
			}
			if !both.Empty() {
				classes = append(classes, d)
			}
		}
	}
	if len(classes) > maxClasses {
		return fmt.Errorf("more than %d kinds of property names: %w", maxClasses, grammar.ErrTooLarge)
	}
	o.classes = classes
	return nil
}

// notObject are the objects outside of o.
func (n *normaliser) notObject(o object) (out []object, err error) {
	for _, h := range o.has { // none exists
		keys, err := h.keySet()
		if err != nil {
			return nil, err
		}
		q := allObjects()
		if err := n.divide(&q, keys, n.not(h.is)); err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	add := func(change func(*object)) {
		p := allObjects()
		change(&p)
		if p.possible() {
			out = append(out, p)
		}
	}
	var names []string
	for _, p := range o.props {
		names = append(names, p.name)
		if p.required {
			add(func(q *object) { n.set(q, p.name, never, false) })
		}
		if p.is != always {
			add(func(q *object) { n.set(q, p.name, n.not(p.is), true) })
		}
	}
	for _, c := range o.classes {
		if c.is != always {
			add(func(q *object) { q.has = []class{{keys: c.keys, is: n.not(c.is), but: names}} })
		}
	}
	if o.min > 0 {
		add(func(q *object) { q.max = o.min - 1 })
	}
	if o.max >= 0 {
		add(func(q *object) { q.min = o.max + 1 })
	}
	return out, nil
}
