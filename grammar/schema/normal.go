package schema

import (
	"errors"
	"fmt"

	"terrace/grammar"
)

// normal is the normal form of a formula: for each type of JSON, the union of some sets.
type normal struct {
	null    bool
	bools   [2]bool // false, true
	numbers []numbers
	texts   []texts
	arrays  []array
	objects []object
}

// Bounds of one normalisation.
const (
	maxSets = 2000   // of one type in one normal form
	budget  = 400000 // pairs of sets that are intersected
	maxDeep = 400    // formulas that are being normalised at once
)

var errCircle = fmt.Errorf("circular reference: %w", grammar.ErrUnsupported)

// normaliser knows a document and the normal forms of its formulas.
type normaliser struct {
	formulas
	doc   *document
	known map[formula]*normal
	open  map[formula]bool
	spent int
	empty map[formula]bool
}

func newNormaliser(root *value) *normaliser {
	return &normaliser{formulas: newFormulas(), doc: newDocument(root), known: map[formula]*normal{}, open: map[formula]bool{}, empty: map[formula]bool{never: true}}
}

func anything() *normal {
	return &normal{null: true, bools: [2]bool{true, true}, numbers: []numbers{{}}, texts: []texts{allTexts}, arrays: []array{allArrays()}, objects: []object{allObjects()}}
}

// normal is the normal form of a formula.
func (n *normaliser) normal(f formula) (*normal, error) {
	if x, ok := n.known[f]; ok {
		return x, nil
	}
	c := n.list[max(f, 0)]
	if n.open[f] {
		return nil, fmt.Errorf("schema: %s refers to itself without anything in between: %w", n.where(f), errCircle)
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	if len(n.open) > maxDeep {
		return nil, fmt.Errorf("schema: %s: conditions refer to each other more than %d deep: %w", n.where(f), maxDeep, grammar.ErrTooLarge)
	}
	n.open[f] = true
	defer delete(n.open, f)
	x, err := n.build(f, c)
	if err != nil {
		return nil, err
	}
	n.known[f] = x
	return x, nil
}

func (n *normaliser) build(f formula, c condition) (x *normal, err error) {
	switch {
	case f == never:
		return &normal{}, nil
	case f == always:
		return anything(), nil
	case c.schema != nil:
		return n.schema(c.schema)
	case c.literal != nil:
		return n.literals([]*value{c.literal})
	case c.all != nil:
		x = anything()
		for _, g := range c.all {
			y, err := n.normal(g)
			if err != nil {
				return nil, err
			}
			if x, err = n.both(x, y); err != nil {
				return nil, fmt.Errorf("schema: %s: %w", n.where(f), err)
			}
		}
		return x, nil
	}
	if x, err = n.normal(c.not); err != nil {
		return nil, err
	}
	if x, err = n.opposite(x); err != nil {
		return nil, fmt.Errorf("schema: %s: %w", n.where(f), err)
	}
	return x, nil
}

// where names the place of a formula.
func (n *normaliser) where(f formula) string {
	c := n.list[f]
	switch {
	case c.schema != nil:
		return place(c.schema)
	case c.literal != nil:
		return place(c.literal)
	case len(c.all) > 0:
		return n.where(c.all[0])
	case f > always:
		return n.where(c.not)
	}
	return "a condition"
}

func (n *normaliser) spend() error {
	if n.spent++; n.spent > budget {
		return fmt.Errorf("combining conditions takes more than %d steps: %w", budget, grammar.ErrTooLarge)
	}
	return nil
}

// pairs combines every set of a with every one of b.
func pairs[T any](n *normaliser, a, b []T, both func(T, T) (T, bool, error)) (out []T, err error) {
	for _, x := range a {
		for _, y := range b {
			if err := n.spend(); err != nil {
				return nil, err
			}
			z, ok, err := both(x, y)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, z)
			}
		}
	}
	if len(out) > maxSets {
		return nil, fmt.Errorf("more than %d alternatives: %w", maxSets, grammar.ErrTooLarge)
	}
	return out, nil
}

// both is what is in a and in b.
func (n *normaliser) both(a, b *normal) (*normal, error) {
	out := &normal{null: a.null && b.null, bools: [2]bool{a.bools[0] && b.bools[0], a.bools[1] && b.bools[1]}}
	var err error
	if out.numbers, err = pairs(n, a.numbers, b.numbers, func(x, y numbers) (numbers, bool, error) {
		z, ok := x.and(y)
		return z, ok, nil
	}); err != nil {
		return nil, err
	}
	if out.texts, err = pairs(n, a.texts, b.texts, func(x, y texts) (texts, bool, error) {
		z, err := x.and(y)
		return z, err == nil && !z.empty(), err
	}); err != nil {
		return nil, err
	}
	if out.arrays, err = pairs(n, a.arrays, b.arrays, func(x, y array) (array, bool, error) {
		z, ok := n.bothArrays(x, y)
		return z, ok, nil
	}); err != nil {
		return nil, err
	}
	out.objects, err = pairs(n, a.objects, b.objects, n.bothObjects)
	return out, err
}

// either is what is in a or in b.
func either(a, b *normal) *normal {
	return &normal{null: a.null || b.null, bools: [2]bool{a.bools[0] || b.bools[0], a.bools[1] || b.bools[1]},
		numbers: append(a.numbers[:len(a.numbers):len(a.numbers)], b.numbers...), texts: append(a.texts[:len(a.texts):len(a.texts)], b.texts...),
		arrays: append(a.arrays[:len(a.arrays):len(a.arrays)], b.arrays...), objects: append(a.objects[:len(a.objects):len(a.objects)], b.objects...)}
}

// opposite is what is not in x.
func (n *normaliser) opposite(x *normal) (*normal, error) {
	out := anything()
	out.null, out.bools = !x.null, [2]bool{!x.bools[0], !x.bools[1]}
	var err error
	for _, s := range x.numbers {
		no, err := s.not()
		if err != nil {
			return nil, err
		}
		if out.numbers, err = pairs(n, out.numbers, no, func(x, y numbers) (numbers, bool, error) {
			z, ok := x.and(y)
			return z, ok, nil
		}); err != nil {
			return nil, err
		}
	}
	for _, s := range x.texts {
		no, err := s.not()
		if err != nil {
			return nil, err
		}
		if out.texts, err = pairs(n, out.texts, no, func(x, y texts) (texts, bool, error) {
			z, err := x.and(y)
			return z, err == nil && !z.empty(), err
		}); err != nil {
			return nil, err
		}
	}
	for _, s := range x.arrays {
		no, err := n.notArray(s)
		if err != nil {
			return nil, err
		}
		if out.arrays, err = pairs(n, out.arrays, no, func(x, y array) (array, bool, error) {
			z, ok := n.bothArrays(x, y)
			return z, ok, nil
		}); err != nil {
			return nil, err
		}
	}
	for _, s := range x.objects {
		no, err := n.notObject(s)
		if err != nil {
			return nil, err
		}
		if out.objects, err = pairs(n, out.objects, no, n.bothObjects); err != nil {
			return nil, err
		}
	}
	return out, err
}

// isEmpty says that nothing satisfies a formula; false where that is not seen within depth.
func (n *normaliser) isEmpty(f formula, depth int) (bool, error) {
	if e, ok := n.empty[f]; ok {
		return e, nil
	}
	if f == always || depth == 0 || n.open[f] {
		return false, nil
	}
	x, err := n.normal(f)
	if errors.Is(err, errCircle) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	empty, err := n.nothingIn(x, depth)
	if err != nil {
		return false, err
	}
	if empty {
		n.empty[f] = true
	}
	return empty, nil
}

// nothingIn is isEmpty of a normal form.
func (n *normaliser) nothingIn(x *normal, depth int) (bool, error) {
	if x.null || x.bools[0] || x.bools[1] || len(x.numbers) > 0 || len(x.texts) > 0 {
		return false, nil
	}
	for i := range x.arrays {
		a, none := &x.arrays[i], false
		for k := 0; k < min(a.min, len(a.first)+1) && !none; k++ {
			var err error
			if none, err = n.isEmpty(a.item(k), depth-1); err != nil {
				return false, err
			}
		}
		if !none {
			return false, nil
		}
	}
	for i := range x.objects {
		none := false
		for _, p := range x.objects[i].props {
			if p.required && !none {
				var err error
				if none, err = n.isEmpty(p.is, depth-1); err != nil {
					return false, err
				}
			}
		}
		if !none {
			return false, nil
		}
	}
	return true, nil
}
