package jinja

import (
	"math"
	"math/big"
	"slices"
	"strings"
)

// listKind tells Python's sequences apart.
type listKind uint8

const (
	kindList listKind = iota
	kindTuple
	kindView      // dict.keys(), values(), items(): no index
	kindGenerator // what filters such as map give: read once, no length
)

// List is a Python list; also a tuple, a view of a dict or a generator.
type List struct {
	Items []any
	kind  listKind
	name  string       // of a view: dict_keys, …
	used  bool         // a generator that was read
	later func() []any // a generator's items, computed when it is read; nil = Items
}

// NewList makes a list of items.
func NewList(items ...any) *List { return &List{Items: items} }

func newTuple(items ...any) *List { return &List{Items: items, kind: kindTuple} }

// Dict is a Python dict: its entries stay in the order in which their keys came.
type Dict struct {
	keys   []any
	values []any
	index  map[any]int
}

// NewDict makes an empty dict.
func NewDict() *Dict { return &Dict{index: map[any]int{}} }

// Len is the number of entries.
func (d *Dict) Len() int { return len(d.keys) }

// Set adds or replaces an entry; the key is a string, number, boolean, nil or a tuple of them.
func (d *Dict) Set(key, value any) *Dict {
	h := hashKey(key)
	if i, ok := d.index[h]; ok {
		d.values[i] = value
		return d
	}
	d.index[h] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, value)
	return d
}

// Get reads an entry.
func (d *Dict) Get(key any) (any, bool) {
	i, ok := d.index[hashKey(key)]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// Delete removes an entry, if it is there.
func (d *Dict) Delete(key any) {
	i, ok := d.index[hashKey(key)]
	if !ok {
		return
	}
	d.keys, d.values = slices.Delete(d.keys, i, i+1), slices.Delete(d.values, i, i+1)
	d.index = map[any]int{}
	for i, k := range d.keys {
		d.index[hashKey(k)] = i
	}
}

// Update adds or replaces the entries of another dict.
func (d *Dict) Update(more *Dict) {
	for i, k := range more.keys {
		d.Set(k, more.values[i])
	}
}

// MapStrings replaces the strings inside lists and dicts, their keys left out, by what f makes of them, and returns v, which is
// changed where it is no string itself.
func MapStrings(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case *List:
		for i, x := range v.Items {
			v.Items[i] = MapStrings(x, f)
		}
	case *Dict:
		for i, x := range v.values {
			v.values[i] = MapStrings(x, f)
		}
	}
	return v
}

// Copy is a dict with the same entries.
func (d *Dict) Copy() *Dict {
	c := NewDict()
	c.Update(d)
	return c
}

type (
	tupleKey string // the text of a tuple as a key of a map
	noneKey  struct{}
)

// hashKey maps equal keys to equal Go values: 1, 1.0 and True are one key.
func hashKey(key any) any {
	switch k := key.(type) {
	case nil:
		return noneKey{}
	case bool:
		if k {
			return int64(1)
		}
		return int64(0)
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<62 {
			return int64(k)
		}
		return k
	case markup:
		return string(k)
	case int64, string:
		return k
	case *List:
		if k.kind == kindTuple {
			var b strings.Builder
			for _, x := range k.Items {
				h := hashKey(x)
				b.WriteString(sprintf("%T:%d:%v;", h, len(sprintf("%v", h)), h))
			}
			return tupleKey(b.String())
		}
	case *undefined:
		return undefined{}
	}
	if _, ok := key.(*Dict); ok {
		throw("unhashable type: 'dict'")
	}
	if l, ok := key.(*List); ok && l.kind == kindList {
		throw("unhashable type: 'list'")
	}
	return key
}

type (
	// undefined is a value that is not there; what says why in messages.
	undefined struct{ what string }
	// markup is text that |safe marked: "+" escapes what it is joined with.
	markup string
	// rangeValue is range(start, stop, step).
	rangeValue struct{ start, stop, step int64 }
	// namespaceValue is what namespace() makes: the only thing whose attributes a template sets.
	namespaceValue struct{ vars *Dict }
	// builtin is a function or method of the language.
	builtin struct {
		name string
		call func(r *run, args []any, named []named) any
		of   any // whose method it is; nil = nobody's
	}
	named struct {
		name  string
		value any
	}
	// macroValue is a macro, or the caller of a call block.
	macroValue struct {
		name  string
		sig   *signature
		scope *scope
	}
	// cyclerValue is what cycler() makes.
	cyclerValue struct {
		items []any
		at    int
	}
	// joinerValue is what joiner() makes.
	joinerValue struct {
		sep  string
		used bool
	}
)

func (v *rangeValue) length() int64 {
	switch {
	case v.step > 0 && v.start < v.stop:
		return (v.stop-v.start-1)/v.step + 1
	case v.step < 0 && v.start > v.stop:
		return (v.start-v.stop-1)/(-v.step) + 1
	}
	return 0
}

// text is the string in v, for string and markup.
func text(v any) (string, bool) {
	switch s := v.(type) {
	case string:
		return s, true
	case markup:
		return string(s), true
	}
	return "", false
}

// typeName is Python's name of v's type.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, bigInt:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *List:
		return [...]string{"list", "tuple", v.name, "generator"}[v.kind]
	case *Dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *rangeValue:
		return "range"
	case *namespaceValue:
		return "Namespace"
	case *macroValue:
		return "Macro"
	case *builtin:
		return "function"
	case *loopValue:
		return "LoopContext"
	case *cyclerValue:
		return "Cycler"
	case *joinerValue:
		return "Joiner"
	}
	return "object"
}

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *List:
		return v.kind == kindGenerator || len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	case *rangeValue:
		return v.length() > 0
	}
	return true
}

// number is v as a float, for bool, int and float.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case bigInt:
		n, _ := asBig(v)
		x, _ := new(big.Float).SetInt(n).Float64()
		return x, true
	}
	return 0, false
}

// integer is v as an integer, for bool and int.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}
