package hf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// find returns a tensor of the checkpoint and checks its shape; nil after a fault. layer is for the message, -1 = none.
func (v *view) find(name string, layer int, shape ...int) *gguf.Tensor {
	full := v.prefix + name
	t := v.files.tensor(full)
	if kind := v.files.dtypes[full]; kind != "" {
		v.faults.add("%s: tensor %q%s: dtype %s is not supported (F32, F16, BF16): %w", filepath.Base(v.files.fileOf(full)), full, inLayer(layer), kind, ErrConfig)
		return nil
	}
	if t == nil {
		v.faults.add("%s: tensor %q%s: %w", filepath.Base(v.files.path), full, inLayer(layer), ErrMissingTensor)
		return nil
	}
	if !slices.Equal(t.Shape, shape) {
		v.faults.add("%s: tensor %q%s: shape %v, want %v: %w", filepath.Base(v.files.fileOf(full)), full, inLayer(layer), t.Shape, shape, ErrShape)
		return nil
	}
	return t
}

// whole reads the n numbers of a tensor of 64-bit integers; nil after a fault.
func (v *view) whole(name string, layer, n int) []int64 {
	full := v.prefix + name
	raw := v.files.raw(full)
	switch kind := v.files.dtypes[full]; {
	case raw == nil:
		v.faults.add("%s: tensor %q%s: %w", filepath.Base(v.files.path), full, inLayer(layer), ErrMissingTensor)
		return nil
	case kind != "I64" || len(raw) != 8*n:
		v.faults.add("%s: tensor %q%s: %d bytes of dtype %s, want %d numbers of I64: %w", filepath.Base(v.files.fileOf(full)), full, inLayer(layer), len(raw), kind, n, ErrShape)
		return nil
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	return out
}

func inLayer(layer int) string {
	if layer < 0 {
		return ""
	}
	return fmt.Sprintf(" of layer %d", layer)
}

func (v *view) add(t *gguf.Tensor) { v.tensors = append(v.tensors, t) }

// matrix presents a matrix [rows, cols] as it lies in the file.
func (v *view) matrix(name, hfName string, layer, rows, cols int) {
	if t := v.find(hfName, layer, rows, cols); t != nil {
		v.add(sameBytes(name, t, rows, cols))
	}
}

// sameBytes is a tensor of another name and shape with the bytes of t.
func sameBytes(name string, t *gguf.Tensor, shape ...int) *gguf.Tensor {
	same := gguf.NewTensor(name, t.Type, shape, func() ([]byte, error) {
		if raw := t.Raw(); raw != nil {
			return raw, nil // what is presented is scanned, not what lies below
		}
		return t.Bytes()
	})
	if path, offset, ok := t.Where(0, t.Rows()); ok {
		same.At(path, offset)
	}
	return same
}

// transposed presents a matrix stored [cols, rows] (GPT-2's Conv1D) as [rows, cols].
func (v *view) transposed(name, hfName string, layer, rows, cols int) {
	if t := v.find(hfName, layer, cols, rows); t != nil {
		t = plain(t)
		v.add(gguf.NewTensor(name, t.Type, []int{rows, cols}, func() ([]byte, error) {
			raw, err := t.Bytes()
			if err != nil {
				return nil, err
			}
			return transpose(raw, cols, rows, t.Type.BlockBytes()), nil
		}))
	}
}

// transpose turns [rows, cols] elements of that many bytes into [cols, rows].
func transpose(src []byte, rows, cols, elemBytes int) []byte {
	dst := make([]byte, len(src))
	for i := range rows {
		for j := range cols {
			copy(dst[(j*rows+i)*elemBytes:][:elemBytes], src[(i*cols+j)*elemBytes:])
		}
	}
	return dst
}

// vector presents a vector of n elements widened to F32, with plus added to each (Gemma's norms store w-1).
func (v *view) vector(name, hfName string, layer, n int, plus float32) {
	t := v.find(hfName, layer, n)
	if t == nil {
		return
	}
	v.add(gguf.NewTensor(name, quant.F32, []int{n}, func() ([]byte, error) {
		raw, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		x := make([]float32, n)
		quant.Dequantize(t.Type, x, raw)
		for i := range x {
			x[i] += plus
		}
		return floatBytes(x), nil
	}))
}

const f32 = quant.F32

// floatsOf reads a small tensor as float32.
func floatsOf(t *gguf.Tensor) ([]float32, error) {
	raw, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	x := make([]float32, t.Rows()*t.Cols())
	quant.Dequantize(t.Type, x, raw)
	return x, nil
}

// values presents a vector that was computed from the config.
func (v *view) values(name string, x []float32) {
	v.add(gguf.NewTensor(name, quant.F32, []int{len(x)}, func() ([]byte, error) { return floatBytes(x), nil }))
}

func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, f := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

// linear presents a weight [rows, cols] with its bias, where the config says that there is one.
func (v *view) linear(name, hfName string, layer, rows, cols int, bias bool) {
	v.matrix(name+".weight", hfName+".weight", layer, rows, cols)
	if bias {
		v.vector(name+".bias", hfName+".bias", layer, rows, 0)
	}
}

// norm presents the weight and bias of a LayerNorm.
func (v *view) layerNorm(name, hfName string, layer int) {
	v.vector(name+".weight", hfName+".weight", layer, v.hidden, 0)
	v.vector(name+".bias", hfName+".bias", layer, v.hidden, 0)
}

// stack presents one weight [rows, cols] of every expert as [experts, rows, cols]; pattern has a %d for the expert.
func (v *view) stack(name, pattern string, layer, experts, rows, cols int) {
	parts := make([]*gguf.Tensor, experts)
	for e := range parts {
		if parts[e] = v.find(fmt.Sprintf(pattern, e), layer, rows, cols); parts[e] == nil {
			return
		}
		if parts[e].Type != parts[0].Type {
			v.faults.add("tensor %q: dtype %s, other experts have %s: %w", v.prefix+fmt.Sprintf(pattern, e), parts[e].Type, parts[0].Type, ErrConfig)
			return
		}
	}
	v.add(gguf.Stack(name, parts))
}

// outer presents embedding, last norm and head of the usual decoder; the norm's weight gets plus added.
func (v *view) outer(plus float32) {
	v.matrix("token_embd.weight", "model.embed_tokens.weight", -1, v.vocab, v.hidden)
	v.vector("output_norm.weight", "model.norm.weight", -1, v.hidden, plus)
	v.head("lm_head.weight", "model.embed_tokens.weight", v.hidden)
}

// head presents the output matrix, unless it is tied to the embedding. A tied checkpoint may hold the head once more; one
// that differs is refused, since transformers ties it before version 5 and uses it from then on.
func (v *view) head(hfName, embedName string, cols int) {
	prefix := v.prefix
	defer func() { v.prefix = prefix }()
	if v.files.tensor(v.prefix+hfName) == nil { // the head stands outside of what the prefix names
		v.prefix = v.files.headPrefix(hfName)
	}
	if tied, err := v.meta.Bool("terrace.tie_word_embeddings"); err != nil || !tied {
		v.matrix("output.weight", hfName, -1, v.vocab, cols)
		return
	}
	head, embed := v.files.tensor(v.prefix+hfName), v.files.tensor(prefix+embedName)
	if head != nil && embed != nil && !(head.Type == embed.Type && slices.Equal(head.Shape, embed.Shape) && bytes.Equal(head.Raw(), embed.Raw())) {
		v.faults.add("%s: tie_word_embeddings is true, but tensor %q differs from %q: set it to false to use this head, or remove the tensor: %w",
			v.cfg.where, v.prefix+hfName, prefix+embedName, ErrConfig)
	}
}

// headBias presents the head's bias. A tied head lies beside the embedding then, which has none.
func (v *view) headBias() {
	if tied, err := v.meta.Bool("terrace.tie_word_embeddings"); err == nil && tied {
		v.matrix("output.weight", "model.embed_tokens.weight", -1, v.vocab, v.hidden)
	}
	prefix := v.prefix
	defer func() { v.prefix = prefix }()
	if !v.has("lm_head.bias") {
		v.prefix = v.files.headPrefix("lm_head.bias")
	}
	v.vector("output.bias", "lm_head.bias", -1, v.vocab, 0)
}

// has reports whether the checkpoint has a tensor.
func (v *view) has(hfName string) bool { return v.files.tensors[v.prefix+hfName] != nil }

// refuseUnreadBias: where the config says that there are biases, one that has no place in the family's tensors would be left out unsaid.
func (v *view) refuseUnreadBias() {
	for key, value := range v.cfg.values {
		if value != true || !strings.Contains(key, "bias") {
			continue
		}
		if name := v.files.unreadBias(v.prefix); name != "" {
			v.faults.add("%s: tensor %q: this model_type has no bias there: %w", filepath.Base(v.files.fileOf(name)), name, ErrConfig)
		}
		return
	}
}

// eachLayer calls fn for every layer until one has a fault, and refuses a checkpoint that has more layers than the config.
func (v *view) eachLayer(stem string, fn func(i int, name, hfName string)) {
	for i := range v.layers {
		fn(i, layerName(i), fmt.Sprintf("%s%d.", stem, i))
		if len(v.faults.list) > 0 {
			return
		}
	}
	if name := v.files.beyond(v.prefix+stem, v.layers+v.spare); name != "" {
		v.faults.add("%s: tensor %q lies beyond the %d layers that %s says (num_hidden_layers): %w", filepath.Base(v.files.path), name, v.layers, v.cfg.where, ErrConfig)
	}
}
