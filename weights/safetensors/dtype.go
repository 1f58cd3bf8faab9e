package safetensors

import "terrace/internal/kernels/quant"

// dtypeBits is the size of an element in bits (the two smallest are packed).
var dtypeBits = map[string]int{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
	"U16": 16, "I16": 16, "F16": 16, "BF16": 16,
	"U32": 32, "I32": 32, "F32": 32,
	"U64": 64, "I64": 64, "F64": 64, "C64": 64,
}

// floatTypes are the dtypes that a gguf.Tensor can present.
var floatTypes = map[string]quant.Type{"F32": quant.F32, "F16": quant.F16, "BF16": quant.BF16}
