package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Set stores a value under a key, in place of an earlier one. x is a bool, string, any integer or float, or a slice of one
// of those; Go's int becomes int32 where it fits, else int64. It panics for another Go type, which is a mistake of the
// program: values of users and files have been typed before.
func (m *Meta) Set(key string, x any) { m.put(key, valueOf(x)) }

// Delete removes a key.
func (m *Meta) Delete(key string) {
	if m.Has(key) {
		delete(m.values, key)
		m.keys = slices.DeleteFunc(m.keys, func(k string) bool { return k == key })
	}
}

// Clone returns a copy that can be changed without changing m.
func (m *Meta) Clone() *Meta {
	c := &Meta{}
	for _, key := range m.keys {
		c.put(key, m.values[key])
	}
	return c
}

func (m *Meta) put(key string, v *value) {
	if m.values == nil {
		m.values = map[string]*value{}
	}
	if m.values[key] == nil {
		m.keys = append(m.keys, key)
	}
	m.values[key] = v
}

func valueOf(x any) *value {
	switch x := x.(type) {
	case string:
		return &value{kind: kindString, text: x}
	case []string:
		return stringsValue(x)
	case []uint8:
		return arrayOf(x)
	case []int8:
		return arrayOf(x)
	case []uint16:
		return arrayOf(x)
	case []int16:
		return arrayOf(x)
	case []uint32:
		return arrayOf(x)
	case []int32:
		return arrayOf(x)
	case []uint64:
		return arrayOf(x)
	case []int64:
		return arrayOf(x)
	case []int:
		return intsValue(x)
	case []float32:
		return arrayOf(x)
	case []float64:
		return arrayOf(x)
	case []bool:
		return arrayOf(x)
	}
	kind, bits := scalar(x)
	return &value{kind: kind, bits: bits}
}

func scalar(x any) (valueKind, uint64) {
	switch x := x.(type) {
	case bool:
		if x {
			return kindBool, 1
		}
		return kindBool, 0
	case uint8:
		return kindUint8, uint64(x)
	case int8:
		return kindInt8, uint64(uint8(x))
	case uint16:
		return kindUint16, uint64(x)
	case int16:
		return kindInt16, uint64(uint16(x))
	case uint32:
		return kindUint32, uint64(x)
	case int32:
		return kindInt32, uint64(uint32(x))
	case uint64:
		return kindUint64, x
	case int64:
		return kindInt64, uint64(x)
	case int:
		if x >= math.MinInt32 && x <= math.MaxInt32 {
			return kindInt32, uint64(uint32(x))
		}
		return kindInt64, uint64(x)
	case float32:
		return kindFloat32, uint64(math.Float32bits(x))
	case float64:
		return kindFloat64, math.Float64bits(x)
	}
	panic(fmt.Sprintf("gguf: a metadata value cannot be a %T", x))
}

func arrayOf[T any](list []T) *value {
	var zero T
	kind, _ := scalar(any(zero))
	raw := make([]byte, 0, len(list)*kindBytes[kind])
	for _, x := range list {
		_, bits := scalar(any(x))
		raw = appendScalar(raw, kind, bits)
	}
	return &value{kind: kindArray, elem: kind, n: len(list), text: string(raw)}
}

func intsValue(list []int) *value {
	small := make([]int32, len(list))
	for i, x := range list {
		if x < math.MinInt32 || x > math.MaxInt32 {
			wide := make([]int64, len(list))
			for i, x := range list {
				wide[i] = int64(x)
			}
			return arrayOf(wide)
		}
		small[i] = int32(x)
	}
	return arrayOf(small)
}

// stringsValue keeps its own copy of the list; text stays empty, the encoding is made when it is written.
func stringsValue(list []string) *value {
	return &value{kind: kindArray, elem: kindString, n: len(list), strings: slices.Clone(list)}
}

func appendScalar(b []byte, kind valueKind, bits uint64) []byte {
	switch kindBytes[kind] {
	case 1:
		return append(b, byte(bits))
	case 2:
		return binary.LittleEndian.AppendUint16(b, uint16(bits))
	case 4:
		return binary.LittleEndian.AppendUint32(b, uint32(bits))
	}
	return binary.LittleEndian.AppendUint64(b, bits)
}
