package convert

import (
	"strings"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// stays reports whether a tensor is kept in F32 whatever the type asked for: vectors, norms, and the small matrices whose
// error would cost more than their bytes (llama.cpp's list).
func stays(name string, shape []int) bool {
	if len(shape) == 1 || strings.Contains(name, "_norm") || !strings.HasSuffix(name, ".weight") {
		return true
	}
	return containsAny(name, "ffn_gate_inp.weight", "position_embd.weight", "token_types.weight", "rope_f", "ssm_conv1d.weight", "shortconv.conv.weight", "_coef.weight")
}

// halves reports whether a matrix is kept in BF16, if not in F32, whatever smaller type is asked for (llama.cpp's list): those through which
// per-layer inputs and streams of Gemma 3n and 4 go.
func halves(name string) bool {
	return containsAny(name, "altup_", "laurel_", "per_layer_model_proj")
}

func containsAny(name string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// typeFor chooses the type of a tensor: the one asked for, or where its rows are no whole blocks the next larger one that
// fits, as llama.cpp does (Q3_K and IQ4_XS by 4 bits in blocks of 32, Q4_K and Q5_K by 5, Q6_K by Q8_0, then F16).
func typeFor(want quant.Type, name string, shape []int) quant.Type {
	if stays(name, shape) {
		return quant.F32
	}
	if halves(name) && want != quant.F32 && want != quant.F16 {
		return quant.BF16
	}
	cols := shape[len(shape)-1]
	for cols%want.BlockLen() != 0 {
		switch want {
		case quant.Q3_K:
			want = quant.Q4_0
		case quant.IQ4_XS:
			want = quant.IQ4_NL
		case quant.Q4_K:
			want = quant.Q5_0
		case quant.Q5_K:
			want = quant.Q5_1
		case quant.Q6_K:
			want = quant.Q8_0
		default:
			want = quant.F16
		}
	}
	return want
}

// plan chooses the type of every tensor and tells which could not have the one asked for.
func plan(meta *gguf.Meta, tensors []*gguf.Tensor, o Options) []gguf.Info {
	infos := make([]gguf.Info, len(tensors))
	fallen, first, fellFrom, requantised := map[quant.Type]int{}, map[quant.Type]string{}, map[quant.Type]quant.Type{}, 0
	shape := shapeFor(meta, tensors)
	shape.weighted = o.Importance != nil
	for i, t := range tensors {
		want := o.Type
		if o.Mix.Name != "" {
			want = o.Mix.typeOf(&shape, t.Name, t.Shape[len(t.Shape)-1])
		}
		kind := typeFor(want, t.Name, t.Shape)
		infos[i] = gguf.Info{Name: t.Name, Type: kind, Shape: t.Shape}
		if kind != want && !stays(t.Name, t.Shape) && !halves(t.Name) {
			if fallen[kind]++; fallen[kind] == 1 {
				first[kind], fellFrom[kind] = t.Name, want
			}
		}
		if t.Type != kind && t.Type.BlockLen() > 1 && kind.BlockLen() > 1 {
			requantised++
		}
	}
	for _, kind := range quant.Types() {
		if n := fallen[kind]; n > 0 {
			o.notice("%d tensors have rows that are no multiple of %d values and are written as %s instead of %s (first: %s)", n, o.Type.BlockLen(), kind, fellFrom[kind], first[kind])
		}
	}
	if requantised > 0 {
		o.notice("%d tensors are quantised already and are quantised again: errors add up; start from F16, BF16 or F32 where you can", requantised)
	}
	return infos
}
