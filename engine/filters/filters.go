// Package filters reads the vectors that qfilter scores keys with (Q-Filters, arXiv 2503.02812).
package filters

import (
	"fmt"

	"terrace/internal/kernels/quant"
	"terrace/policy"
	"terrace/weights"
	"terrace/weights/safetensors"
)

// Name is the tensor's, as kvpress's QFilters saves it.
const Name = "q_filters"

// Read reads a safetensors file's tensor q_filters, [layers, KV heads, head width] in F32, F16 or BF16. Errors name the file and wrap
// weights.ErrFormat, weights.ErrMissingTensor, weights.ErrNotFinite, those of package safetensors, or the system's.
func Read(path string) (*policy.Filters, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, t := range f.Tensors() {
		if t.Name != Name {
			continue
		}
		if len(t.Shape) != 3 {
			return nil, fmt.Errorf("filters: %s: %s has the shape %v, want layers, KV heads, head width: %w", path, Name, t.Shape, weights.ErrFormat)
		}
		raw, err := t.Bytes()
		if err != nil {
			return nil, fmt.Errorf("filters: %s: %w", path, err)
		}
		out := &policy.Filters{Layers: t.Shape[0], KVHeads: t.Shape[1], KeyDim: t.Shape[2], Values: make([]float32, t.Rows()*t.Cols())}
		quant.Dequantize(t.Type, out.Values, raw)
		return out, nil
	}
	return nil, fmt.Errorf("filters: %s: no tensor %s of F32, F16 or BF16 there, is it a file of q-filters?: %w", path, Name, weights.ErrMissingTensor)
}
