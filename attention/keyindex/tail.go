package keyindex

import "slices"

// train finds the centroids of the keys behind the sinks.
func (h *Head) train(n int, pos []int32) {
	first, _ := slices.BinarySearch(pos[:n], int32(h.need.Sinks))
	keys := make([]float32, (n-first)*h.dim)
	h.scratch.reader.Keys(h.view, first, n, keys)
	h.product.Train(keys, n-first)
	if h.values != nil {
		values := make([]float32, (n-first)*h.need.ValueDim)
		h.scratch.reader.Values(h.view, first, n, values)
		h.values.Train(values, n-first)
	}
}

// Tail implements policy.Scorer.
func (h *Head) Tail(_ int, weights []float32, rows int, dst []float32) {
	h.readBytes += h.values.scanBytes()
	h.values.Sum(dst, weights, rows)
}

// Tail implements policy.Scorer.
func (x *Index) Tail(kvHead int, weights []float32, rows int, dst []float32) {
	x.heads[kvHead].Tail(0, weights, rows, dst)
}
