package gguf

import (
	"fmt"
	"slices"
)

// Meta is a model's metadata under GGUF's key names, in the order of the file. The zero value is empty and ready for Set.
type Meta struct {
	keys   []string
	values map[string]*value
}

// Has reports whether the key is there.
func (m *Meta) Has(key string) bool { return m.values[key] != nil }

// Keys lists the keys in file order.
func (m *Meta) Keys() []string { return slices.Clone(m.keys) }

// String returns the text of a key. Errors wrap ErrMissingKey or ErrWrongType, as those of all getters do, and name the key.
func (m *Meta) String(key string) (string, error) {
	v, err := m.get(key, "string", kindString)
	if err != nil {
		return "", err
	}
	return v.text, nil
}

// Int returns an integer of any width; one that an int cannot hold is an error.
func (m *Meta) Int(key string) (int, error) {
	v, err := m.find(key)
	if err != nil {
		return 0, err
	}
	if !v.kind.isInteger() {
		return 0, wrongType(key, v, "an integer")
	}
	n, ok := integer(v.kind, v.bits)
	if !ok {
		return 0, fmt.Errorf("gguf: key %q: %d is out of the range of an integer: %w", key, v.bits, ErrWrongType)
	}
	return n, nil
}

// Float returns a floating-point number of either width.
func (m *Meta) Float(key string) (float64, error) {
	v, err := m.get(key, "float32 or float64", kindFloat32, kindFloat64)
	if err != nil {
		return 0, err
	}
	return float(v.kind, v.bits), nil
}

// Bool returns a truth value.
func (m *Meta) Bool(key string) (bool, error) {
	v, err := m.get(key, "bool", kindBool)
	if err != nil {
		return false, err
	}
	return v.bits != 0, nil
}

// Strings returns a list of texts; the caller must not change it.
func (m *Meta) Strings(key string) ([]string, error) {
	v, err := m.getArray(key, "array of string", kindString)
	if err != nil {
		return nil, err
	}
	return v.list(), nil
}

// Ints returns a list of integers of any width, or of truth values as 0 and 1 (some files have layer patterns so).
func (m *Meta) Ints(key string) ([]int, error) {
	v, err := m.find(key)
	if err != nil {
		return nil, err
	}
	if v.kind != kindArray || !v.elem.isInteger() && v.elem != kindBool {
		return nil, wrongType(key, v, "an array of integers")
	}
	list := make([]int, v.n)
	for i := range list {
		if v.elem == kindBool {
			list[i] = int(min(v.item(i), 1))
			continue
		}
		n, ok := integer(v.elem, v.item(i))
		if !ok {
			return nil, fmt.Errorf("gguf: key %q: item %d is out of the range of an integer: %w", key, i, ErrWrongType)
		}
		list[i] = n
	}
	return list, nil
}

// Int32s returns a list whose items are 32-bit integers in the file (GGUF's token types); other widths are an error.
func (m *Meta) Int32s(key string) ([]int32, error) {
	v, err := m.getArray(key, "array of int32", kindInt32, kindUint32)
	if err != nil {
		return nil, err
	}
	list := make([]int32, v.n)
	for i := range list {
		list[i] = int32(v.item(i))
	}
	return list, nil
}

// Floats returns a list of float32 (float64 items are rounded).
func (m *Meta) Floats(key string) ([]float32, error) {
	v, err := m.getArray(key, "array of float32", kindFloat32, kindFloat64)
	if err != nil {
		return nil, err
	}
	list := make([]float32, v.n)
	for i := range list {
		list[i] = float32(float(v.elem, v.item(i)))
	}
	return list, nil
}

// Len returns the number of items of an array, 0 for other values and missing keys.
func (m *Meta) Len(key string) int {
	if v := m.values[key]; v != nil {
		return v.n
	}
	return 0
}

func (m *Meta) find(key string) (*value, error) {
	if v := m.values[key]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("gguf: key %q: %w", key, ErrMissingKey)
}

func (m *Meta) get(key, want string, kinds ...valueKind) (*value, error) {
	v, err := m.find(key)
	if err == nil && !slices.Contains(kinds, v.kind) {
		return nil, wrongType(key, v, want)
	}
	return v, err
}

func (m *Meta) getArray(key, want string, elems ...valueKind) (*value, error) {
	v, err := m.find(key)
	if err == nil && (v.kind != kindArray || !slices.Contains(elems, v.elem)) {
		return nil, wrongType(key, v, want)
	}
	return v, err
}

func wrongType(key string, v *value, want string) error {
	return fmt.Errorf("gguf: key %q: type is %s, want %s: %w", key, v.typeName(), want, ErrWrongType)
}
