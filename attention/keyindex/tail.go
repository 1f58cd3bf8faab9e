package keyindex

import "slices"

// train finds the centroids of the keys behind the sinks, or of a sample of them.
func (h *sketch) train(n int, pos []int32) {
	first, _ := slices.BinarySearch(pos[:n], int32(h.need.Sinks))
	keys := make([]float32, (n-first)*h.dim)
	h.scratch.reader.Keys(h.view, first, n, keys)
	h.product.Train(keys, thin(keys, n-first, h.dim, h.need.Sample))
	if h.values != nil {
		values := make([]float32, (n-first)*h.need.ValueDim)
		h.scratch.reader.Values(h.view, first, n, values)
		h.values.Train(values, thin(values, n-first, h.need.ValueDim, h.need.Sample))
	}
}

// thin moves `most` of the n rows, evenly spread, to the front of x [n, dim], and returns how many rows there are; 0 = all stay.
func thin(x []float32, n, dim, most int) int {
	if most == 0 || n <= most {
		return n
	}
	for i := range most {
		copy(x[i*dim:(i+1)*dim], x[(2*i+1)*n/(2*most)*dim:][:dim])
	}
	return most
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
