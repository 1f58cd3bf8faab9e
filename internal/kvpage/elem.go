package kvpage

import (
	"fmt"
	"slices"
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
	I3
	I2
)

var elemNames = [...]string{F32: "f32", F16: "f16", BF16: "bf16", I8: "int8", I4: "int4", I3: "int3", I2: "int2"}

// String is the name that ParseElem reads.
func (e Elem) String() string {
	if int(e) < len(elemNames) {
		return elemNames[e]
	}
	return fmt.Sprintf("Elem(%d)", uint8(e))
}

// ParseElem reads f32, f16, bf16, int8 (or i8), int4, int3, int2 (likewise). The error wraps ErrElem and lists the names.
func ParseElem(s string) (Elem, error) {
	for e, name := range elemNames {
		if s == name || Elem(e).Quantised() && s == "i"+name[len("int"):] {
			return Elem(e), nil
		}
	}
	return 0, fmt.Errorf("kvpage: element type %q: want one of %s%s: %w", s, strings.Join(elemNames[:], ", "), nearest.Hint(s, elemNames[:]), ErrElem)
}

// Quantised says that numbers share scales: keys are then written a group of tokens at a time (PutGroupK), not a token at a time.
func (e Elem) Quantised() bool { return e >= I8 }

// KeyGroup is how many tokens share scales in keys of the type, and are written at once: a tile, or several whose scales lie before the
// first. Pages hold whole groups.
func (e Elem) KeyGroup() int {
	if e.low() {
		return lowGroup
	}
	return Tile
}

// Names are the types' names.
func Names() []string { return slices.Clone(elemNames[:]) }

// Bits is the size of one number without its share of scales.
func (e Elem) Bits() int { return [...]int{32, 16, 16, 8, 4, 3, 2}[e] }
