package hftest

import (
	"encoding/binary"
	"fmt"
	"math"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// Tensor is a dequantised tensor, row-major.
type Tensor struct {
	Shape []int
	Data  []float64
}

// Model is a model read completely into float64.
type Model struct {
	meta    *gguf.Meta
	tensors map[string]*Tensor
	arch    string

	layers, hidden, heads, kvHeads, keyDim int
}

// New reads all tensors.
func New(meta *gguf.Meta, tensors []*gguf.Tensor) (*Model, error) {
	m := &Model{meta: meta, tensors: map[string]*Tensor{}}
	for _, t := range tensors {
		raw, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		data, err := widen(t.Type, raw)
		if err != nil {
			return nil, fmt.Errorf("hftest: tensor %q: %w", t.Name, err)
		}
		m.tensors[t.Name] = &Tensor{t.Shape, data}
	}
	var err error
	if m.arch, err = meta.String("general.architecture"); err != nil {
		return nil, err
	}
	for key, to := range map[string]*int{"block_count": &m.layers, "embedding_length": &m.hidden,
		"attention.head_count": &m.heads, "attention.head_count_kv": &m.kvHeads, "attention.key_length": &m.keyDim} {
		*to = int(m.number(key, -1))
		if *to < 1 {
			return nil, fmt.Errorf("hftest: %s.%s is missing", m.arch, key)
		}
	}
	return m, nil
}

func widen(kind quant.Type, raw []byte) ([]float64, error) {
	var out []float64
	switch kind {
	case quant.F32:
		for i := 0; i < len(raw); i += 4 {
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))))
		}
	case quant.BF16:
		for i := 0; i < len(raw); i += 2 {
			out = append(out, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[i:]))<<16)))
		}
	case quant.F16:
		for i := 0; i < len(raw); i += 2 {
			out = append(out, half(binary.LittleEndian.Uint16(raw[i:])))
		}
	default:
		return nil, fmt.Errorf("type %s is not one that this oracle reads", kind)
	}
	return out, nil
}

// half is the value of an IEEE binary16.
func half(b uint16) float64 {
	sign, exp, frac := 1-2*float64(b>>15), int(b>>10&31), float64(b&1023)
	if exp == 0 {
		return sign * math.Ldexp(frac, -24)
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

// number reads a figure of the architecture's metadata.
func (m *Model) number(key string, def float64) float64 { return m.plain(m.arch+"."+key, def) }

func (m *Model) plain(key string, def float64) float64 {
	if !m.meta.Has(key) {
		return def
	}
	if n, err := m.meta.Int(key); err == nil {
		return float64(n)
	}
	if x, err := m.meta.Float(key); err == nil {
		return x
	}
	if b, err := m.meta.Bool(key); err == nil && b {
		return 1
	}
	return 0
}

func (m *Model) text(key, def string) string {
	if s, err := m.meta.String(key); err == nil {
		return s
	}
	return def
}

// linear is W·x + b, with rows [from, from+rows) of W.
func (m *Model) linear(name string, x []float64, from, rows int) []float64 {
	w, bias := m.tensors[name+".weight"], m.tensors[name+".bias"]
	out := make([]float64, rows)
	for r := range out {
		row := w.Data[(from+r)*len(x):][:len(x)]
		for i, v := range x {
			out[r] += row[i] * v
		}
		if bias != nil {
			out[r] += bias.Data[from+r]
		}
	}
	return out
}

// whole is linear over all rows of a matrix.
func (m *Model) whole(name string, x []float64) []float64 {
	shape := m.tensors[name+".weight"].Shape
	return m.linear(name, x, 0, shape[len(shape)-2])
}

// norm is RMSNorm, or LayerNorm where the metadata has its epsilon; without such a tensor it is the identity.
func (m *Model) norm(name string, x []float64) []float64 {
	w, b := m.tensors[name+".weight"], m.tensors[name+".bias"]
	if w == nil {
		return x
	}
	mean, eps := 0.0, m.number("attention.layer_norm_rms_epsilon", 0)
	if m.meta.Has(m.arch + ".attention.layer_norm_epsilon") {
		eps = m.number("attention.layer_norm_epsilon", 0)
		for _, v := range x {
			mean += v / float64(len(x))
		}
	}
	sum := 0.0
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	inv := 1 / math.Sqrt(sum/float64(len(x))+eps)
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = (v - mean) * inv * w.Data[i]
		if b != nil {
			out[i] += b.Data[i]
		}
	}
	return out
}

func (m *Model) activate(x float64) float64 {
	def := map[string]string{"gemma": "gelu_tanh", "gemma2": "gelu_tanh", "gemma3": "gelu_tanh", "gpt2": "gelu_tanh", "opt": "relu"}[m.arch]
	switch m.text("terrace.activation", def) {
	case "relu":
		return math.Max(x, 0)
	case "gelu":
		return 0.5 * x * (1 + math.Erf(x/math.Sqrt2))
	case "gelu_tanh":
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return x / (1 + math.Exp(-x))
}
