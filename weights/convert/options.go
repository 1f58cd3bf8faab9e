package convert

import (
	"fmt"

	"terrace/internal/kernels/quant"
	"terrace/weights/imatrix"
)

// Options of Quantize and Synthesize.
type Options struct {
	Type quant.Type // of the matrices
	Mix  Mix        // of Quantize: matrices get types by their places; its Base is Type. Zero = all get Type
	// Importance, if not nil, weighs the errors of each matrix's columns (Quantize only).
	Importance *imatrix.Matrix
	// Progress, if not nil, is told how many bytes of the result are written.
	Progress func(doneBytes, totalBytes int64)
	// Notice, if not nil, is told what a user should know: fallbacks, requantisation.
	Notice func(text string)
}

// fileTypes are the numbers of general.file_type (llama.cpp's llama_ftype: "mostly" that type).
var fileTypes = map[quant.Type]uint32{
	quant.F32: 0, quant.F16: 1, quant.Q4_0: 2, quant.Q4_1: 3, quant.Q8_0: 7, quant.Q5_0: 8, quant.Q5_1: 9,
	quant.Q3_K: 11, quant.Q4_K: 14, quant.Q5_K: 16, quant.Q6_K: 18, quant.IQ4_NL: 25, quant.IQ4_XS: 30, quant.BF16: 32,
}

func (o Options) validate() error {
	if _, ok := fileTypes[o.Type]; !ok || !o.Type.Writable() {
		return fmt.Errorf("convert: %s: %w", o.Type, ErrType)
	}
	return nil
}

// fileType is general.file_type.
func (o Options) fileType() uint32 {
	if o.Mix.Name != "" {
		return o.Mix.fileType
	}
	return fileTypes[o.Type]
}

func (o Options) notice(format string, args ...any) {
	if o.Notice != nil {
		o.Notice(fmt.Sprintf(format, args...))
	}
}
