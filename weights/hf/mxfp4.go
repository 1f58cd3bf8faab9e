package hf

import (
	"path/filepath"
	"slices"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// MXFP4 as it is published: a block of 32 numbers is 16 bytes of *_blocks, number 2i in the low half of byte i and 2i+1 in the high one, and a
// byte of *_scales, the exponent. GGUF's block has the exponent first, then numbers i and i+16 in byte i. The numbers are the same.
const (
	mxfp4Numbers = 32
	mxfp4Half    = mxfp4Numbers / 2
)

// bytesOf finds a tensor of U8 and checks its shape; nil after a fault.
func (v *view) bytesOf(name string, layer int, shape ...int) func() []byte {
	full := v.prefix + name
	for _, f := range v.files.files {
		e, ok := f.Entry(full)
		if !ok {
			continue
		}
		if e.DType != "U8" || !slices.Equal(e.Shape, shape) {
			v.faults.add("%s: tensor %q%s: %s %v, want U8 %v: %w", filepath.Base(f.Path()), full, inLayer(layer), e.DType, e.Shape, shape, ErrShape)
			return nil
		}
		return func() []byte { return f.Bytes(full) }
	}
	v.faults.add("%s: tensor %q%s: %w", filepath.Base(v.files.path), full, inLayer(layer), ErrMissingTensor)
	return nil
}

// mxfp4Rows presents rows of experts that are stored as blocks and scales, [E, rows, cols/32, 16] and [E, rows, cols/32]: taken of each
// expert's, from first on, step apart.
func (v *view) mxfp4Rows(name, hfName string, layer, experts, rows, cols, first, step, taken int) {
	if cols%mxfp4Numbers != 0 {
		v.faults.add("tensor %q: rows of %d numbers, MXFP4 wants a multiple of %d: %w", v.prefix+hfName, cols, mxfp4Numbers, ErrShape)
		return
	}
	per := cols / mxfp4Numbers
	blocks, scales := v.bytesOf(hfName+"_blocks", layer, experts, rows, per, mxfp4Half), v.bytesOf(hfName+"_scales", layer, experts, rows, per)
	if blocks == nil || scales == nil {
		return
	}
	v.add(gguf.NewTensor(name, quant.MXFP4, []int{experts, taken, cols}, func() ([]byte, error) {
		b, s := blocks(), scales()
		out := make([]byte, 0, experts*taken*per*(1+mxfp4Half))
		for e := range experts {
			for r := range taken {
				at := (e*rows + first + r*step) * per
				for i := at; i < at+per; i++ {
					out = appendMXFP4(append(out, s[i]), b[i*mxfp4Half:(i+1)*mxfp4Half])
				}
			}
		}
		return out, nil
	}))
}

// appendMXFP4 appends the numbers of a published block in GGUF's order.
func appendMXFP4(dst, block []byte) []byte {
	number := func(i int) byte { return block[i/2] >> (4 * (i % 2)) & 15 }
	for i := range mxfp4Half {
		dst = append(dst, number(i)|number(i+mxfp4Half)<<4)
	}
	return dst
}
