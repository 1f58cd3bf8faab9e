package quant

import (
	"fmt"
	"slices"
	"strings"
)

// Type is ggml's number of a tensor element type.
type Type uint32

// The known types. Numbers are those of ggml; gaps are types that ggml dropped or that Terrace does not read.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q2_K Type = 10
	Q3_K Type = 11
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14

	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
)

// superBlock is the number of values in a block of the K types, the IQ types but IQ4_NL, and the ternary types.
const superBlock = 256

// format is what the program knows of a type.
type format struct {
	name       string
	blockLen   int // values
	blockBytes int
	dequantize func(dst []float32, src []byte)             // whole blocks
	quantize   func(dst []byte, src []float32)             // whole blocks; nil = cannot be written
	finite     func(src []byte) int                        // first block (element for float types) that is not finite, -1 = none
	weighted   func(dst []byte, row, importance []float32) // one row; nil = importance has no part in it
}

// formats is indexed by Type; filled in init because the functions refer to it.
var formats [64]format

func init() {
	formats = [64]format{
		F32:    {"F32", 1, 4, dequantizeF32, quantizeF32, finiteF32, nil},
		F16:    {"F16", 1, 2, dequantizeF16, quantizeF16, finiteF16, nil},
		BF16:   {"BF16", 1, 2, dequantizeBF16, quantizeBF16, finiteBF16, nil},
		Q8_0:   {"Q8_0", 32, 34, dequantizeQ8_0, quantizeQ8_0, scalesAt(34, 0, 1), nil},
		Q4_0:   {"Q4_0", 32, 18, dequantizeQ4_0, quantizeQ4_0, scalesAt(18, 0, 1), signed4.quantize},
		Q4_1:   {"Q4_1", 32, 20, dequantizeQ4_1, quantizeQ4_1, scalesAt(20, 0, 2), ranged4.quantize},
		Q5_0:   {"Q5_0", 32, 22, dequantizeQ5_0, quantizeQ5_0, scalesAt(22, 0, 1), signed5.quantize},
		Q5_1:   {"Q5_1", 32, 24, dequantizeQ5_1, quantizeQ5_1, scalesAt(24, 0, 2), ranged5.quantize},
		Q2_K:   {"Q2_K", superBlock, 84, dequantizeQ2K, nil, scalesAt(84, 80, 2), nil},
		Q3_K:   {"Q3_K", superBlock, 110, dequantizeQ3K, quantizeQ3K, scalesAt(110, 108, 1), quantizeQ3KWeighted},
		Q4_K:   {"Q4_K", superBlock, 144, dequantizeQ4K, quantizeQ4K, scalesAt(144, 0, 2), quantizeQ4KWeighted},
		Q5_K:   {"Q5_K", superBlock, 176, dequantizeQ5K, quantizeQ5K, scalesAt(176, 0, 2), quantizeQ5KWeighted},
		Q6_K:   {"Q6_K", superBlock, 210, dequantizeQ6K, quantizeQ6K, scalesAt(210, 208, 1), quantizeQ6KWeighted},
		IQ4_NL: {"IQ4_NL", 32, 18, dequantizeIQ4NL, quantizeIQ4NL, scalesAt(18, 0, 1), quantizeIQ4NLWeighted},
		IQ4_XS: {"IQ4_XS", superBlock, 136, dequantizeIQ4XS, quantizeIQ4XS, scalesAt(136, 0, 1), quantizeIQ4XSWeighted},
		MXFP4:  {"MXFP4", 32, 17, dequantizeMXFP4, nil, finiteMXFP4, nil},
		NVFP4:  {"NVFP4", 64, 36, dequantizeNVFP4, nil, func([]byte) int { return -1 }, nil},

		F8_E4M3:   {"F8_E4M3", 32, 36, dequantizeF8, nil, finiteF8, nil},
		NVFP4_F32: {"NVFP4_F32", 32, 24, dequantizeNVFP4F32, nil, finiteNVFP4F32, nil},

		IQ1_S:   codedFormat(IQ1_S, "IQ1_S", 50, scalesAt(50, 0, 1)),
		IQ1_M:   codedFormat(IQ1_M, "IQ1_M", 56, finiteIQ1M),
		IQ2_XXS: codedFormat(IQ2_XXS, "IQ2_XXS", 66, scalesAt(66, 0, 1)),
		IQ2_XS:  codedFormat(IQ2_XS, "IQ2_XS", 74, scalesAt(74, 0, 1)),
		IQ2_S:   codedFormat(IQ2_S, "IQ2_S", 82, scalesAt(82, 0, 1)),
		IQ3_XXS: codedFormat(IQ3_XXS, "IQ3_XXS", 98, scalesAt(98, 0, 1)),
		IQ3_S:   codedFormat(IQ3_S, "IQ3_S", 110, scalesAt(110, 0, 1)),
		TQ1_0:   codedFormat(TQ1_0, "TQ1_0", 54, scalesAt(54, 52, 1)),
		TQ2_0:   codedFormat(TQ2_0, "TQ2_0", 66, scalesAt(66, 64, 1)),
	}
}

// codedFormat is the format of a coded type, which can be read and not be written.
func codedFormat(t Type, name string, blockBytes int, finite func(src []byte) int) format {
	k := codedTypes[t]
	return format{name, superBlock, blockBytes, func(dst []float32, src []byte) { k.dequantize(dst, src, blockBytes) }, nil, finite, nil}
}

// Types lists the known types in the order of their numbers.
func Types() []Type {
	var list []Type
	for i := range formats {
		if Type(i).Known() {
			list = append(list, Type(i))
		}
	}
	return list
}

// Known reports whether t is a type that this package can read.
func (t Type) Known() bool { return int(t) < len(formats) && formats[t].blockLen > 0 }

// Writable reports whether Quantize can make blocks of t.
func (t Type) Writable() bool { return t.Known() && formats[t].quantize != nil }

// unread are the types of ggml that exist and are not read here, for messages.
var unread = map[Type]string{
	9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
}

// String is ggml's name of the type in upper case; "type N" for an unknown one, with its name where ggml has it.
func (t Type) String() string {
	if t.Known() {
		return formats[t].name
	}
	if name, ok := unread[t]; ok {
		return fmt.Sprintf("type %d (%s)", uint32(t), name)
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// BlockLen is the number of values in a block, 0 for an unknown type.
func (t Type) BlockLen() int {
	if !t.Known() {
		return 0
	}
	return formats[t].blockLen
}

// BlockBytes is the size of a block in bytes, 0 for an unknown type.
func (t Type) BlockBytes() int {
	if !t.Known() {
		return 0
	}
	return formats[t].blockBytes
}

// RowBytes is the size of a row of cols values in bytes; cols must be a multiple of BlockLen.
func (t Type) RowBytes(cols int) int { return cols / t.BlockLen() * t.BlockBytes() }

// ParseType finds a type by its name in any case ("Q4_K", "bf16"). Errors wrap ErrUnknownType and list the names.
func ParseType(s string) (Type, error) {
	var names []string
	for _, t := range Types() {
		if strings.EqualFold(s, t.String()) {
			return t, nil
		}
		names = append(names, t.String())
	}
	slices.Sort(names)
	return 0, fmt.Errorf("quant: type %q: %w (known: %s)", s, ErrUnknownType, strings.Join(names, " "))
}

// Dequantize writes the values of the blocks in src to dst, exactly as ggml computes them. len(dst) must be a multiple of
// t.BlockLen and src must hold t.RowBytes(len(dst)) bytes; it panics otherwise, and for an unknown type.
func Dequantize(t Type, dst []float32, src []byte) {
	if len(dst)%t.BlockLen() != 0 || len(src) < t.RowBytes(len(dst)) {
		panic(fmt.Sprintf("quant: dequantize %s: %d values from %d bytes", t, len(dst), len(src)))
	}
	formats[t].dequantize(dst, src)
}

// Quantize writes src as blocks of t, as ggml's reference quantisers do (without importance weights). Errors wrap
// ErrUnsupported or ErrLength; values that are not finite give blocks that CheckFinite refuses.
func Quantize(t Type, dst []byte, src []float32) error {
	if !t.Writable() {
		return fmt.Errorf("quant: %s: %w", t, ErrUnsupported)
	}
	if len(src)%t.BlockLen() != 0 || len(dst) != t.RowBytes(len(src)) {
		return fmt.Errorf("quant: %s: %d values to %d bytes, want a multiple of %d values and %d bytes: %w",
			t, len(src), len(dst), t.BlockLen(), t.RowBytes(len(src)), ErrLength)
	}
	formats[t].quantize(dst, src)
	return nil
}

// QuantizeWeighted writes one row as blocks of t, its errors weighed by importance: for each column a number ≥ 0, the mean square of
// what the column is multiplied with (llama.cpp's importance matrix). It searches as ggml's quantisers do; types without a search
// (F32, F16, BF16, Q8_0) have no use for it, as in ggml. nil = Quantize. Errors wrap ErrUnsupported or ErrLength.
func QuantizeWeighted(t Type, dst []byte, row, importance []float32) error {
	if importance == nil || t.Writable() && formats[t].weighted == nil {
		return Quantize(t, dst, row)
	}
	if !t.Writable() {
		return fmt.Errorf("quant: %s: %w", t, ErrUnsupported)
	}
	if len(row)%t.BlockLen() != 0 || len(dst) != t.RowBytes(len(row)) || len(importance) != len(row) {
		return fmt.Errorf("quant: %s: %d values of %d weights to %d bytes, want as many, in blocks of %d, and %d bytes: %w",
			t, len(row), len(importance), len(dst), t.BlockLen(), t.RowBytes(len(row)), ErrLength)
	}
	formats[t].weighted(dst, row, importance)
	return nil
}

// CheckFinite returns the index of the first value in src that is NaN or infinite, or, for types with blocks, of the first
// value of the first block with such a scale; -1 if there is none. src must be whole blocks.
func CheckFinite(t Type, src []byte) (badElement int) {
	if i := formats[t].finite(src); i >= 0 {
		return i * t.BlockLen()
	}
	return -1
}
