package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// foldScales multiplies NVFP4 matrices of a GGUF file with the scale that llama.cpp keeps beside each ("blk.0.ffn_up.scale" of
// "blk.0.ffn_up.weight", one number, or one an expert): they are presented as NVFP4_F32. Scales beside matrices of other types are an
// architecture's own, as are those of Gemma 4's experts and their router, which it multiplies itself.
func (m *Model) foldScales() error {
	arch, _ := m.meta.String("general.architecture")
	gemma4 := strings.HasPrefix(arch, "gemma4")
	for i, t := range m.tensors {
		stem, isWeight := strings.CutSuffix(t.Name, ".weight")
		scale := m.byName[stem+".scale"]
		if !isWeight || scale == nil || t.Type != quant.NVFP4 || gemma4 && (strings.HasSuffix(stem, "_exps") || strings.HasSuffix(stem, "ffn_gate_inp")) {
			continue
		}
		n := scale.Rows() * scale.Cols()
		switch {
		case scale.Type != quant.F32:
			return fmt.Errorf("weights: %s: tensor %q: type %s, want F32: %w", m.path, scale.Name, scale.Type, ErrUnsupported)
		case n != 1 && (len(t.Shape) != 3 || n != t.Shape[0]):
			return fmt.Errorf("weights: %s: tensor %q: shape %v, want 1 or one an expert of %v: %w", m.path, scale.Name, scale.Shape, t.Shape, ErrFormat)
		}
		m.tensors[i] = gguf.NewTensor(t.Name, quant.NVFP4_F32, t.Shape, func() ([]byte, error) {
			blocks, err := t.Bytes()
			if err != nil {
				return nil, err
			}
			scales, err := scale.Bytes()
			if err != nil {
				return nil, err
			}
			return scaledNVFP4(blocks, scales), nil
		})
		m.byName[t.Name] = m.tensors[i]
		if m.folded == nil {
			m.folded = map[string]bool{}
		}
		m.folded[scale.Name] = true
	}
	return nil
}

// Folded reports whether a tensor is a scale that another one is presented multiplied with.
func Folded(m *Model, name string) bool { return m.folded[name] }

// scaledNVFP4 turns blocks of 64 numbers into two of 32, whose scales are multiplied with the block's own of the scales given, each of an
// equal share of the blocks.
func scaledNVFP4(blocks, scales []byte) []byte {
	count := len(blocks) / 36
	out := make([]byte, 0, 48*count)
	for i := range count {
		b := blocks[36*i : 36*i+36]
		all := math.Float32frombits(binary.LittleEndian.Uint32(scales[i*(len(scales)/4)/count*4:]))
		for h := range 2 {
			for _, code := range b[2*h : 2*h+2] {
				out = binary.LittleEndian.AppendUint32(out, math.Float32bits(quant.NVScale(code)*all))
			}
			out = append(out, b[4+16*h:20+16*h]...)
		}
	}
	return out
}
