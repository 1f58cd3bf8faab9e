package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
)

// valueKind is GGUF's number of a metadata value type.
type valueKind uint32

// The metadata value types.
const (
	kindUint8 valueKind = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
	kinds
)

var kindNames = [kinds]string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64"}

// kindBytes is the size of a scalar; 0 for strings and arrays.
var kindBytes = [kinds]int{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

func (k valueKind) String() string {
	if k >= kinds {
		return fmt.Sprintf("type %d", uint32(k))
	}
	return kindNames[k]
}

func (k valueKind) isInteger() bool {
	switch k {
	case kindUint8, kindInt8, kindUint16, kindInt16, kindUint32, kindInt32, kindUint64, kindInt64:
		return true
	}
	return false
}

// value is one metadata value. Scalars are kept in bits; strings in text; arrays as their bytes in the file's encoding (in
// text, immutable), from which items are decoded when asked for.
type value struct {
	kind valueKind
	elem valueKind // of an array
	bits uint64
	text string
	n    int // items of an array

	once    sync.Once
	strings []string // of a string array, cut from text at first use
}

// typeName says what the value is in an error message.
func (v *value) typeName() string {
	if v.kind == kindArray {
		return fmt.Sprintf("array of %d %s", v.n, v.elem)
	}
	return v.kind.String()
}

// integer widens an integer scalar; ok is false if it does not fit an int.
func integer(kind valueKind, bits uint64) (n int, ok bool) {
	switch kind {
	case kindInt8:
		return int(int8(bits)), true
	case kindInt16:
		return int(int16(bits)), true
	case kindInt32:
		return int(int32(bits)), true
	case kindInt64:
		return int(int64(bits)), true
	}
	return int(bits), bits <= math.MaxInt
}

func float(kind valueKind, bits uint64) float64 {
	if kind == kindFloat32 {
		return float64(math.Float32frombits(uint32(bits)))
	}
	return math.Float64frombits(bits)
}

// item returns the bits of item i of an array of scalars.
func (v *value) item(i int) uint64 {
	size := kindBytes[v.elem]
	var word [8]byte
	copy(word[:], v.text[i*size:(i+1)*size])
	return binary.LittleEndian.Uint64(word[:])
}

// list cuts the strings of a string array; they share one backing.
func (v *value) list() []string {
	v.once.Do(func() {
		if v.strings != nil || v.n == 0 {
			return
		}
		list := make([]string, v.n)
		at := 0
		for i := range list {
			n := int(stringWord(v.text[at:]))
			list[i] = v.text[at+8 : at+8+n]
			at += 8 + n
		}
		v.strings = list
	})
	return v.strings
}

// stringWord reads the little-endian 64-bit word at the start of s.
func stringWord(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
