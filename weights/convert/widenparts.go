package convert

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
	"terrace/weights/mapped"
)

// widePart is a tensor of a wider model: the source's with its rows or columns laid out again.
type widePart struct {
	tensor *gguf.Tensor
	kind   quant.Type
	shape  []int
	empty  bool    // all zeros
	rows   []int   // of the source, one a row of the result, -1 = zeros; nil = as they are
	heads  *heads  // columns are laid out by heads; nil = as they are
	factor float64 // of a vector that grows at its end (norms of q and k); 0 = none
}

// heads are the columns of an output matrix.
type heads struct {
	slots          []slot
	width, already int // numbers of a head of the result and of the source
}

// part decides how a tensor is widened; kind is its name without the layer.
func (w *widening) part(t *gguf.Tensor, kind string, empty bool) (widePart, error) {
	p := widePart{tensor: t, kind: t.Type, shape: t.Shape, empty: empty}
	name, _, _ := strings.Cut(kind, ".")
	switch name {
	case "attn_q":
		sources := make([]int, len(w.slots))
		for i, s := range w.slots {
			sources[i] = s.head
		}
		return p, p.byRows(sources, w.heads, w.keyDim, w.dim, w.orders[t.Name])
	case "attn_k":
		return p, p.byRows(w.kv, w.kvHeads, w.keyDim, w.dim, w.orders[t.Name])
	case "attn_v":
		return p, p.byRows(w.kv, w.kvHeads, w.valDim, w.dim, w.orders[t.Name])
	case "attn_q_norm", "attn_k_norm":
		if len(t.Shape) != 1 || t.Shape[0] != w.keyDim || t.Type != quant.F32 {
			return p, fmt.Errorf("convert: tensor %q of shape %v in %s: want one norm of %d numbers in F32: %w", t.Name, t.Shape, t.Type, w.keyDim, ErrWiden)
		}
		p.shape, p.factor = []int{w.dim}, math.Sqrt(float64(w.keyDim)/float64(w.dim))
		return p, nil
	case "attn_output":
		if strings.HasSuffix(kind, ".weight") {
			return p, p.byColumns(w)
		}
		return p, nil
	case "attn_norm":
		return p, nil
	case "rope_freqs":
		if t.Type != quant.F32 || len(t.Shape) != 1 {
			return p, fmt.Errorf("convert: tensor %q of shape %v in %s: want a vector in F32: %w", t.Name, t.Shape, t.Type, ErrWiden)
		}
		if w.arch == "llama" {
			p.shape, p.factor = []int{w.dim / 2}, 1
		}
		return p, nil
	}
	if strings.HasPrefix(name, "attn_") {
		return p, fmt.Errorf("convert: tensor %q: it is not known how it widens: %w", t.Name, ErrWiden)
	}
	return p, nil
}

// byRows lays out rows by heads: those of the source's heads named, each with rows of zeros behind.
func (p *widePart) byRows(sources []int, have, old, wide int, order rowOrder) error {
	if p.tensor.Shape[0] != have*old {
		return fmt.Errorf("convert: tensor %q has %d rows, want %d heads of %d: %w", p.tensor.Name, p.tensor.Shape[0], have, old, gguf.ErrFormat)
	}
	p.rows = make([]int, 0, len(sources)*wide)
	for _, head := range sources {
		for i := range wide {
			row := -1
			if i < old {
				if row = head*old + i; order != nil {
					row = order(row)
				}
			}
			p.rows = append(p.rows, row)
		}
	}
	p.shape = append([]int{len(p.rows)}, p.tensor.Shape[1:]...)
	return nil
}

// byColumns lays out columns by heads: in the tensor's type where heads are whole blocks that can be divided without rounding, else in F32.
func (p *widePart) byColumns(w *widening) error {
	t := p.tensor
	if len(t.Shape) != 2 || t.Cols() != w.heads*w.valDim {
		return fmt.Errorf("convert: tensor %q has shape %v, want %d columns: %w", t.Name, t.Shape, w.heads*w.valDim, gguf.ErrFormat)
	}
	halved := 0
	for _, s := range w.slots {
		halved = max(halved, s.halved)
	}
	data, err := t.Bytes()
	if err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	if block := t.Type.BlockLen(); w.valDim%block != 0 || w.dim%block != 0 || !quant.Halves(t.Type, data, halved) {
		p.kind = quant.F32
	}
	p.heads, p.shape = &heads{slots: w.slots, width: w.dim, already: w.valDim}, []int{t.Shape[0], len(w.slots) * w.dim}
	return nil
}

// write makes and writes the tensor, or one of its parts.
func (p *widePart) write(out *writer, t *gguf.Tensor, info gguf.Info) error {
	src := t.Raw()
	if src == nil {
		_, err := t.Bytes()
		return err
	}
	rows, cols := t.Rows(), t.Cols()
	if p.rows != nil {
		rows = len(p.rows)
		if len(t.Shape) == 1 {
			cols = 1
		}
	}
	if p.heads != nil || p.factor != 0 {
		cols = p.shape[len(p.shape)-1]
	}
	if bad := quant.CheckFinite(t.Type, src); bad >= 0 {
		return fmt.Errorf("convert: tensor %q: value %d is NaN or infinite: %w", t.Name, bad, gguf.ErrNotFinite)
	}
	return out.run(info, rows, cols, func(panel *panel, first, n int) error {
		panel.blocks = grown(panel.blocks, n*p.kind.RowBytes(cols))
		clear(panel.blocks)
		switch {
		case p.empty:
			return nil
		case p.rows != nil:
			size := t.Type.RowBytes(cols)
			for i, row := range p.rows[first : first+n] {
				if row >= 0 {
					copy(panel.blocks[i*size:(i+1)*size], src[row*size:])
				}
			}
			return nil
		case p.heads != nil:
			return p.columns(panel, t, src, first, n)
		case p.factor != 0:
			for i := range t.Cols() {
				x := float64(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))) * p.factor
				binary.LittleEndian.PutUint32(panel.blocks[4*i:], math.Float32bits(float32(x)))
			}
			for i := t.Cols(); i < cols; i++ {
				binary.LittleEndian.PutUint32(panel.blocks[4*i:], math.Float32bits(1))
			}
			return nil
		}
		size := t.Type.RowBytes(cols)
		copy(panel.blocks, src[first*size:(first+n)*size])
		return nil
	}, func(first, end int) {
		if p.rows == nil && p.heads == nil && p.factor == 0 {
			size := t.Type.RowBytes(cols)
			mapped.Forget(src[first*size : end*size])
		}
	})
}

// columns makes n rows of an output matrix.
func (p *widePart) columns(out *panel, t *gguf.Tensor, src []byte, first, n int) error {
	h := p.heads
	from, to := t.Type.RowBytes(t.Cols()), p.kind.RowBytes(len(h.slots)*h.width)
	if p.kind != t.Type {
		out.values = grown(out.values, t.Cols())
		out.rows = grown(out.rows, p.kind.RowBytes(t.Cols()))
	}
	for i := range n {
		row := src[(first+i)*from : (first+i+1)*from]
		if p.kind != t.Type {
			quant.Dequantize(t.Type, out.values, row)
			if err := quant.Quantize(p.kind, out.rows, out.values); err != nil {
				return err
			}
			row = out.rows
		}
		size, step := p.kind.RowBytes(h.already), p.kind.RowBytes(h.width)
		for j, s := range h.slots {
			part := out.blocks[i*to+j*step:][:size]
			copy(part, row[s.head*size:])
			quant.Halve(p.kind, part, s.halved)
		}
	}
	return nil
}
