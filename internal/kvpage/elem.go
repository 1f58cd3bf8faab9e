package kvpage

import (
	"cmp"
	"fmt"
	"strings"

	"terrace/internal/nearest"
)

// Elem is the number type of a K or V payload.
type Elem uint8

// The element types; see the package comment for the quantised ones.
const (
	F32 Elem = iota
	F16
	BF16
	I8
	I4
)

var elemNames = [...]string{F32: "f32", F16: "f16", BF16: "bf16", I8: "int8", I4: "int4"}

// String is the name that ParseElem reads.
func (e Elem) String() string {
	if int(e) < len(elemNames) {
		return elemNames[e]
	}
	return fmt.Sprintf("Elem(%d)", uint8(e))
}

// ParseElem reads f32, f16, bf16, int8 (or i8), int4 (or i4). The error wraps ErrElem and lists the names.
func ParseElem(s string) (Elem, error) {
	for e, name := range elemNames {
		if s == name {
			return Elem(e), nil
		}
	}
	switch s {
	case "i8":
		return I8, nil
	case "i4":
		return I4, nil
	}
	return 0, fmt.Errorf("kvpage: element type %q: want one of f32, f16, bf16, int8, int4%s: %w", s, nearest.Hint(s, elemNames[:]), ErrElem)
}

// ParseElems reads the types of K and V: TYPE for both, or k=TYPE,v=TYPE, where a side that is not named takes the type that
// names none, else f16.
func ParseElems(s string) (k, v Elem, err error) {
	both, sides := "", map[string]string{}
	for part := range strings.SplitSeq(s, ",") {
		side, t, ok := strings.Cut(part, "=")
		switch {
		case !ok || side != "k" && side != "v":
			both = part
		case sides[side] != "":
			return 0, 0, fmt.Errorf("%q is given twice", side)
		default:
			sides[side] = t
		}
	}
	parse := func(side string) Elem {
		e, bad := ParseElem(cmp.Or(sides[side], both, "f16"))
		if err == nil {
			err = bad
		}
		return e
	}
	k, v = parse("k"), parse("v")
	return k, v, err
}

// Quantised says that numbers share scales: keys are then written a tile at a time (PutTileK), not a token at a time.
func (e Elem) Quantised() bool { return e == I8 || e == I4 }

// Bits is the size of one number without its share of scales.
func (e Elem) Bits() int { return [...]int{32, 16, 16, 8, 4}[e] }
