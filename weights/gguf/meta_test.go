package gguf

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"terrace/internal/kernels/quant"
)

// filled has a value of every kind.
func filled() *Meta {
	m := &Meta{}
	m.Set("u8", uint8(200))
	m.Set("i8", int8(-3))
	m.Set("u16", uint16(60000))
	m.Set("i16", int16(-300))
	m.Set("u32", uint32(4e9))
	m.Set("i32", int32(-7))
	m.Set("u64", uint64(math.MaxUint64))
	m.Set("i64", int64(-1<<40))
	m.Set("int", 5)
	m.Set("wide", 1<<40)
	m.Set("f32", float32(1.5))
	m.Set("f64", 2.25)
	m.Set("yes", true)
	m.Set("no", false)
	m.Set("text", "naïve")
	m.Set("texts", []string{"a", "", "ü"})
	m.Set("none", []string{})
	m.Set("u8s", []uint8{1, 255})
	m.Set("i8s", []int8{-1})
	m.Set("u16s", []uint16{65535})
	m.Set("i16s", []int16{-2})
	m.Set("u32s", []uint32{1 << 31})
	m.Set("i32s", []int32{-5, 6})
	m.Set("u64s", []uint64{1, math.MaxUint64})
	m.Set("i64s", []int64{-1 << 50})
	m.Set("ints", []int{1, -2})
	m.Set("wides", []int{1, 1 << 40})
	m.Set("f32s", []float32{0.5, -1})
	m.Set("f64s", []float64{0.25})
	m.Set("bools", []bool{true, false})
	return m
}

// written passes a model through a file.
func written(t *testing.T, m *Meta, infos []Info, data ...[]byte) *header {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, m, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range data {
		if _, err := w.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestGetters reads every kind, from what was set and again from a file.
func TestGetters(t *testing.T) {
	want := map[string]any{
		"u8": 200, "i8": -3, "u16": 60000, "i16": -300, "u32": 4000000000, "i32": -7, "i64": -1 << 40, "int": 5, "wide": 1 << 40,
		"f32": 1.5, "f64": 2.25, "yes": true, "no": false, "text": "naïve",
		"texts": []string{"a", "", "ü"}, "u8s": []int{1, 255}, "i8s": []int{-1}, "u16s": []int{65535}, "i16s": []int{-2},
		"u32s": []int{1 << 31}, "i32s": []int{-5, 6}, "i64s": []int{-1 << 50}, "ints": []int{1, -2}, "wides": []int{1, 1 << 40},
		"f32s": []float32{0.5, -1}, "f64s": []float32{0.25}, "bools": []bool{true, false},
	}
	set := filled()
	for _, m := range []*Meta{set, written(t, set, nil).meta, set.Clone()} {
		if !slices.Equal(m.Keys(), set.Keys()) {
			t.Errorf("keys %v, want %v", m.Keys(), set.Keys())
		}
		for key, w := range want {
			var got any
			var err error
			switch w.(type) {
			case int:
				got, err = m.Int(key)
			case float64:
				got, err = m.Float(key)
			case bool:
				got, err = m.Bool(key)
			case string:
				got, err = m.String(key)
			case []string:
				got, err = m.Strings(key)
			case []int:
				got, err = m.Ints(key)
			case []float32:
				got, err = m.Floats(key)
			case []bool:
				continue // read as integers below
			}
			if err != nil || !reflect.DeepEqual(got, w) {
				t.Errorf("%s: got %v, %v; want %v", key, got, err, w)
			}
		}
		if list, err := m.Strings("none"); err != nil || len(list) != 0 {
			t.Errorf("none: got %v, %v", list, err)
		}
		if list, err := m.Ints("bools"); err != nil || !slices.Equal(list, []int{1, 0}) {
			t.Errorf("bools as integers: got %v, %v", list, err)
		}
		if list, err := m.Int32s("i32s"); err != nil || !slices.Equal(list, []int32{-5, 6}) {
			t.Errorf("i32s: got %v, %v", list, err)
		}
	}
}

// TestGetterErrors: a wrong type, a number that does not fit and a missing key are errors that name the key.
func TestGetterErrors(t *testing.T) {
	m := filled()
	call := map[string]func(key string) error{
		"String":  func(k string) error { _, err := m.String(k); return err },
		"Int":     func(k string) error { _, err := m.Int(k); return err },
		"Float":   func(k string) error { _, err := m.Float(k); return err },
		"Bool":    func(k string) error { _, err := m.Bool(k); return err },
		"Strings": func(k string) error { _, err := m.Strings(k); return err },
		"Ints":    func(k string) error { _, err := m.Ints(k); return err },
		"Int32s":  func(k string) error { _, err := m.Int32s(k); return err },
		"Floats":  func(k string) error { _, err := m.Floats(k); return err },
	}
	wrong := map[string]string{
		"String": "u8", "Int": "f32", "Float": "u32", "Bool": "u8", "Strings": "i32s", "Ints": "f32s", "Int32s": "i64s", "Floats": "ints",
	}
	for name, get := range call {
		if err := get("missing"); !errors.Is(err, ErrMissingKey) || !bytes.Contains([]byte(err.Error()), []byte(`"missing"`)) {
			t.Errorf("%s of a missing key: %v", name, err)
		}
		if err := get(wrong[name]); !errors.Is(err, ErrWrongType) || !bytes.Contains([]byte(err.Error()), []byte(wrong[name])) {
			t.Errorf("%s of %s: %v", name, wrong[name], err)
		}
	}
	if err := call["Int"]("u64"); !errors.Is(err, ErrWrongType) {
		t.Errorf("2^64-1 as an int: %v", err)
	}
	if err := call["Ints"]("u64s"); !errors.Is(err, ErrWrongType) {
		t.Errorf("2^64-1 in a list of ints: %v", err)
	}
}

func TestSetReplacesAndDeletes(t *testing.T) {
	m := &Meta{}
	m.Set("a", 1)
	m.Set("b", 2)
	c := m.Clone()
	c.Set("a", "one")
	if n, err := m.Int("a"); err != nil || n != 1 {
		t.Errorf("the clone changed its original: %d, %v", n, err)
	}
	if s, err := c.String("a"); err != nil || s != "one" || len(c.Keys()) != 2 {
		t.Errorf("set again: %q, %v, keys %v", s, err, c.Keys())
	}
	c.Delete("a")
	c.Delete("never")
	if c.Has("a") || !slices.Equal(c.Keys(), []string{"b"}) || c.Len("b") != 0 {
		t.Errorf("after deleting: keys %v", c.Keys())
	}
	defer func() {
		if recover() == nil {
			t.Error("a struct as a value did not panic")
		}
	}()
	m.Set("c", struct{}{})
}

// TestWriterPlacesTensors writes three tensors and reads them back where they belong.
func TestWriterPlacesTensors(t *testing.T) {
	infos := []Info{{"a", quant.F32, []int{3}}, {"b", quant.Q8_0, []int{2, 32}}, {"c", quant.F16, []int{2, 1, 3}}}
	data := [][]byte{bytes.Repeat([]byte{1}, 12), bytes.Repeat([]byte{2}, 68), bytes.Repeat([]byte{3}, 12)}
	m := filled()
	m.Set("general.alignment", uint32(4096))
	var b bytes.Buffer
	w, err := NewWriter(&b, m, infos)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, ErrOrder) {
		t.Errorf("closing before the tensors came: %v, want ErrOrder", err)
	}
	for _, d := range data {
		if _, err := w.Write(d[:5]); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(d); !errors.Is(err, ErrOrder) {
			t.Errorf("too many bytes: %v, want ErrOrder", err)
		}
		if _, err := w.Write(d[5:]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write([]byte{0}); !errors.Is(err, ErrOrder) {
		t.Errorf("a fourth tensor: %v, want ErrOrder", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if h.meta.Has("general.alignment") || h.alignment != 32 {
		t.Errorf("alignment %d, key kept: %v", h.alignment, h.meta.Has("general.alignment"))
	}
	for i, e := range h.entries {
		if !slices.Equal(e.shape, infos[i].Shape) || e.kind != infos[i].Type || !bytes.Equal(b.Bytes()[e.start:e.start+e.size], data[i]) {
			t.Errorf("tensor %q came back as %v %s", e.name, e.shape, e.kind)
		}
	}
	for _, bad := range []Info{{"", quant.F32, []int{1}}, {"x", 4, []int{1}}, {"x", quant.F32, nil}, {"x", quant.F32, []int{0}}, {"x", quant.Q4_K, []int{32}}} {
		if _, err := NewWriter(&b, &Meta{}, []Info{bad}); !errors.Is(err, ErrFormat) {
			t.Errorf("tensor %v: %v, want ErrFormat", bad, err)
		}
	}
}
