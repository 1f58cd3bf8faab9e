package model

import "fmt"

// DType is the element type of weights, keys, values and the products with them on a backend's device. Sums, norms, softmax
// and what the calls hand to each other are float32 with each.
type DType uint8

// The types.
const (
	Float32  DType = iota
	BFloat16       // half the bytes; products of 8 significant bits, summed in float32
)

// String is the type's name on the command line.
func (t DType) String() string {
	if t == BFloat16 {
		return "bf16"
	}
	return "f32"
}

// ParseDType reads f32 or bf16.
func ParseDType(s string) (DType, error) {
	for _, t := range []DType{Float32, BFloat16} {
		if s == t.String() {
			return t, nil
		}
	}
	return 0, fmt.Errorf("model: type %q, want f32 or bf16", s)
}

// Typed is the optional capability of computing in another type than float32: what the backend was opened with.
type Typed interface{ DType() DType }
