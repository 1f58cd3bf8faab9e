package model

import "slices"

// FLOPs counts the floating-point operations that were asked of a backend, two for each multiplication with its sum.
type FLOPs struct {
	Matrices  int64 // products with weights, the head apart
	Attention int64 // q·k and weights·v of the pairs computed
	Head      int64
	Choosing  int64 // q·k of the queries that a prefill mask is chosen by
}

// Total is the sum.
func (w FLOPs) Total() int64 { return w.Matrices + w.Attention + w.Head + w.Choosing }

// Projected counts n rows through q, k and v.
func (w *FLOPs) Projected(m *Model, layer, n int) {
	l := &m.Params.Layers[layer]
	size := elements(l.Q) + elements(l.K) + elements(l.V) + elements(l.QueryDown) + elements(l.KeyDown)
	for _, up := range l.KeyUp {
		size += elements(up)
	}
	w.Matrices += 2 * int64(n) * size
}

// Mixed counts n rows through the products of a recurrent mixer; its own arithmetic is not counted.
func (w *FLOPs) Mixed(m *Model, layer, n int) {
	r := &m.Params.Layers[layer].Recurrent
	size := elements(r.ZDown) + elements(r.Z) + elements(r.ADown) + elements(r.A) + elements(r.B) + elements(r.Out)
	for _, in := range r.In {
		size += elements(in)
	}
	w.Matrices += 2 * int64(n) * size
}

// Finished counts n rows through the output projection and the feed-forward network.
func (w *FLOPs) Finished(m *Model, layer, n int) {
	l := &m.Params.Layers[layer]
	out := elements(l.O) + elements(l.OutGate)
	for _, w := range l.rowLinears() {
		out += elements(w)
	}
	for _, up := range l.ValueUp {
		out += elements(up)
	}
	size := out + elements(l.Gate) + elements(l.Up) + elements(l.Down)
	if m.Layer[layer].MoE {
		size = out + elements(l.Router) + elements(l.ExpertIn) + elements(l.ExpertOut)
		if l.Beside != nil {
			size += elements(l.Gate) + elements(l.Up) + elements(l.Down)
		}
		for _, expert := range [][]*Linear{l.ExpertGate, l.ExpertUp, l.ExpertDown} {
			if len(expert) > 0 {
				size += int64(m.TopK) * elements(expert[0])
			}
		}
	}
	w.Matrices += 2 * int64(n) * size
}

// Attended counts the pairs of query rows and cached keys that one KV head's query heads see: causal, and inside the
// layer's window. Positions ascend.
func (w *FLOPs) Attended(m *Model, layer int, rows, keys []int32) {
	if len(rows) == 0 {
		return
	}
	pairs, window := 0, int32(m.Layer[layer].Window)
	high, _ := slices.BinarySearch(keys, rows[0])
	low := 0
	if window > 0 {
		low, _ = slices.BinarySearch(keys, rows[0]-window+1)
	}
	for _, at := range rows {
		for high < len(keys) && keys[high] <= at {
			high++
		}
		for window > 0 && low < high && at-keys[low] >= window {
			low++
		}
		pairs += high - low
	}
	w.Pairs(m, layer, m.Layer[layer].Group(), pairs)
}

// Pairs counts query-key pairs of some query heads of a layer.
func (w *FLOPs) Pairs(m *Model, layer, heads, pairs int) {
	w.Attention += 2 * int64(heads) * int64(m.Layer[layer].KeyDim+m.Layer[layer].ValDim) * int64(pairs)
}

// Headed counts n rows through the output matrix.
func (w *FLOPs) Headed(m *Model, n int) { w.Head += 2 * int64(n) * elements(m.Params.Output) }

func elements(l *Linear) int64 {
	if l.Absent() {
		return 0
	}
	return int64(l.Rows) * int64(l.Cols)
}
