package lora

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// Use is an adapter and how much of it is added; 1 is all of it.
type Use struct {
	Adapter *Adapter
	Scale   float64
}

// delta is what an adapter adds to a tensor.
type delta struct {
	of    pair
	scale float32
	order func(row int) int // row of B that belongs to a row of the tensor
}

// Merge gives a model's tensors with the adapters' sums in place of those that they change; an adapter of scale 0 changes none. It reads no weights: a merged tensor
// is computed when it is used. Errors wrap ErrAdapter and name the tensor.
func Merge(meta *gguf.Meta, tensors []*gguf.Tensor, uses []Use) ([]*gguf.Tensor, error) {
	byName := map[string]*gguf.Tensor{}
	for _, t := range tensors {
		byName[t.Name] = t
	}
	arch, err := meta.String("general.architecture")
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	deltas := map[string][]delta{}
	for _, u := range uses {
		a := u.Adapter
		if a.arch != "" && a.arch != arch {
			return nil, fmt.Errorf("lora: %s is for architecture %q, the model is %q: %w", a.path, a.arch, arch, ErrAdapter)
		}
		for _, p := range a.pairs {
			t := byName[p.target]
			if t == nil {
				return nil, fmt.Errorf("lora: %s: %q belongs to %s, which the model has not (or not as a matrix of its own): %w", a.path, p.name, p.target, ErrAdapter)
			}
			if want := []int{p.b.Shape[0], p.a.Shape[1]}; !slices.Equal(t.Shape, want) {
				return nil, fmt.Errorf("lora: %s: %q is for a matrix of %v, the model's %s has %v: %w", a.path, p.name, want, t.Name, t.Shape, ErrAdapter)
			}
			order, err := rowsOf(meta, arch, t, a.hf)
			if err != nil {
				return nil, fmt.Errorf("lora: %s: %w", a.path, err)
			}
			if u.Scale == 0 { // the tensor stays as it is, in its own type
				continue
			}
			deltas[t.Name] = append(deltas[t.Name], delta{p, float32(u.Scale * a.scale(p.a.Shape[0])), order})
		}
	}
	out := slices.Clone(tensors)
	for i, t := range out {
		if d := deltas[t.Name]; d != nil {
			out[i] = merged(t, d)
		}
	}
	return out, nil
}

// merged is a tensor with sums added.
func merged(t *gguf.Tensor, deltas []delta) *gguf.Tensor {
	kind := quant.F16
	if t.Type == quant.F32 {
		kind = quant.F32
	}
	return gguf.NewTensor(t.Name, kind, t.Shape, func() ([]byte, error) {
		defer t.Drop()
		return sum(t, kind, deltas)
	})
}

// factors are A and B of one delta in float32.
type factors struct {
	a, b []float32 // [r, in], [out, r]
	rank int
}

func sum(t *gguf.Tensor, kind quant.Type, deltas []delta) ([]byte, error) {
	base, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	var of []factors
	for _, d := range deltas {
		f := factors{rank: d.of.a.Shape[0]}
		for _, side := range []struct {
			from *gguf.Tensor
			to   *[]float32
		}{{d.of.a, &f.a}, {d.of.b, &f.b}} {
			raw, err := side.from.Bytes()
			if err != nil {
				return nil, err
			}
			*side.to = make([]float32, side.from.Rows()*side.from.Cols())
			quant.Dequantize(side.from.Type, *side.to, raw)
		}
		of = append(of, f)
	}
	rows, cols := t.Rows(), t.Cols()
	from, to := t.Type.RowBytes(cols), kind.RowBytes(cols)
	out := make([]byte, rows*to)
	workers := min(runtime.GOMAXPROCS(0), rows)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			row := make([]float32, cols)
			for i := w * rows / workers; i < (w+1)*rows/workers && errs[w] == nil; i++ {
				quant.Dequantize(t.Type, row, base[i*from:(i+1)*from])
				for k, f := range of {
					b := f.b[deltas[k].order(i)*f.rank:][:f.rank]
					for r, factor := range b {
						kernels.Axpy(row, deltas[k].scale*factor, f.a[r*cols:(r+1)*cols])
					}
				}
				errs[w] = quant.Quantize(kind, out[i*to:(i+1)*to], row)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

var rotated = regexp.MustCompile(`^blk\.(\d+)\.attn_(q|k)\.weight$`)

// layoutKey is there where a model's rows are as Hugging Face has them (package hf).
const layoutKey = "terrace.rope.layout"

// ofLayer is a number that all layers share, or that each has its own of (layers of hybrids that do not attend have 0).
func ofLayer(meta *gguf.Meta, key, layer string) (int, error) {
	each, err := meta.Ints(key)
	if err != nil {
		return meta.Int(key)
	}
	at, err := strconv.Atoi(layer)
	if err != nil || at >= len(each) {
		return 0, fmt.Errorf("%s has %d numbers, none of layer %s: %w", key, len(each), layer, ErrAdapter)
	}
	return each[at], nil
}

// rowsOf maps a row of the tensor to the row of B that is added to it.
func rowsOf(meta *gguf.Meta, arch string, t *gguf.Tensor, adapterHF bool) (func(row int) int, error) {
	m := rotated.FindStringSubmatch(t.Name)
	if m == nil || !gguf.PermutesRotary(arch) || meta.Has(layoutKey) == adapterHF {
		return func(row int) int { return row }, nil
	}
	key := arch + ".attention.head_count"
	if m[2] == "k" && meta.Has(key+"_kv") {
		key += "_kv"
	}
	heads, err := ofLayer(meta, key, m[1])
	if err != nil {
		return nil, err
	}
	if heads < 1 || t.Shape[0]%(2*heads) != 0 {
		return nil, fmt.Errorf("tensor %q: %d rows are not %d heads of even width: %w", t.Name, t.Shape[0], heads, ErrAdapter)
	}
	dim := t.Shape[0] / heads
	rot := dim
	if key := arch + ".rope.dimension_count"; meta.Has(key) {
		if rot, err = meta.Int(key); err != nil || rot < 0 || rot > dim || rot%2 != 0 {
			return nil, fmt.Errorf("%s is %d, want an even number up to %d: %w", key, rot, dim, ErrAdapter)
		}
	}
	if adapterHF { // the model's row 2i of a head is the adapter's i, its 2i+1 the adapter's i+rot/2
		return func(row int) int {
			in := row % dim
			if in >= rot {
				return row
			}
			return row - in + in%2*(rot/2) + in/2
		}, nil
	}
	return func(row int) int {
		in := row % dim
		if in >= rot {
			return row
		}
		return row - in + in%(rot/2)*2 + in/(rot/2)
	}, nil
}
