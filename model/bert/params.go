package bert

import (
	"fmt"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/weights"
)

// linear is a matrix [rows, cols] with a bias [rows].
type linear struct {
	w *kernels.Matrix
	b []float32
}

// layerNorm is a weight and a bias [Hidden].
type layerNorm struct{ w, b []float32 }

type layer struct {
	q, k, v, out     linear
	outNorm, ffnNorm layerNorm
	up, down         linear
}

type params struct {
	tokens, positions *kernels.Matrix
	segment           []float32 // of segment 0, the only one that a single text has
	norm              layerNorm
	layers            []layer
}

// loader reads tensors until one is wrong.
type loader struct {
	file *weights.Model
	err  error
}

func (l *loader) bytes(name string, shape ...int) ([]byte, quant.Type) {
	if l.err != nil {
		return nil, 0
	}
	t, err := l.file.Tensor(name)
	if err != nil {
		l.err = err
		return nil, 0
	}
	if fmt.Sprint(t.Shape) != fmt.Sprint(shape) {
		l.err = fmt.Errorf("bert: %s: tensor %q: shape %v, want %v: %w", l.file.Path(), name, t.Shape, shape, ErrModel)
		return nil, 0
	}
	data, err := t.Bytes()
	if err != nil {
		l.err = fmt.Errorf("bert: %s: %w", l.file.Path(), err)
	}
	return data, t.Type
}

func (l *loader) matrix(name string, rows, cols int) *kernels.Matrix {
	data, kind := l.bytes(name, rows, cols)
	if l.err != nil {
		return nil
	}
	m, err := kernels.NewMatrix(kind, rows, cols, data)
	if err != nil {
		l.err = fmt.Errorf("bert: %s: tensor %q: %w", l.file.Path(), name, err)
	}
	return m
}

func (l *loader) vector(name string, n int) []float32 {
	data, kind := l.bytes(name, n)
	if l.err != nil {
		return nil
	}
	x := make([]float32, n)
	quant.Dequantize(kind, x, data)
	return x
}

func (l *loader) linear(name string, rows, cols int) linear {
	return linear{l.matrix(name+".weight", rows, cols), l.vector(name+".bias", rows)}
}

func (l *loader) norm(name string, n int) layerNorm {
	return layerNorm{l.vector(name+".weight", n), l.vector(name+".bias", n)}
}

func (e *Encoder) readParams(file *weights.Model) error {
	l, p, d := &loader{file: file}, &e.params, e.Hidden
	p.tokens = l.matrix("token_embd.weight", e.Vocab, d)
	p.positions = l.matrix("position_embd.weight", e.Positions, d)
	segments := l.matrix("token_types.weight", e.Segments, d)
	p.norm = l.norm("token_embd_norm", d)
	p.layers = make([]layer, e.Layers)
	for i := range p.layers {
		name := fmt.Sprintf("blk.%d.", i)
		p.layers[i] = layer{
			q: l.linear(name+"attn_q", d, d), k: l.linear(name+"attn_k", d, d), v: l.linear(name+"attn_v", d, d), out: l.linear(name+"attn_output", d, d),
			outNorm: l.norm(name+"attn_output_norm", d), ffnNorm: l.norm(name+"layer_output_norm", d),
			up: l.linear(name+"ffn_up", e.FFN, d), down: l.linear(name+"ffn_down", d, e.FFN),
		}
	}
	if l.err != nil {
		return l.err
	}
	p.segment = make([]float32, d)
	segments.Row(p.segment, 0)
	return nil
}
