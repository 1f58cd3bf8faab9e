package engine

import (
	"slices"

	"terrace/attention"
	"terrace/kvmanager"
	"terrace/model"
)

// FLOPs counts the floating-point operations that a session asked of the backend, two for each multiplication with its sum.
type FLOPs struct {
	Matrices  int64 // products with weights, the head apart
	Attention int64 // q·k and weights·v of the pairs computed
	Head      int64
	Choosing  int64 // q·k of the queries that a prefill mask is chosen by
}

// Total is the sum.
func (w FLOPs) Total() int64 { return w.Matrices + w.Attention + w.Head + w.Choosing }

// projected counts n rows through q, k and v.
func (w *FLOPs) projected(m *model.Model, layer, n int) {
	l := &m.Params.Layers[layer]
	w.Matrices += 2 * int64(n) * (elements(l.Q) + elements(l.K) + elements(l.V))
}

// finished counts n rows through the output projection and the feed-forward network.
func (w *FLOPs) finished(m *model.Model, layer, n int) {
	l := &m.Params.Layers[layer]
	size := elements(l.O) + elements(l.Gate) + elements(l.Up) + elements(l.Down)
	if m.Layer[layer].MoE {
		size = elements(l.O) + elements(l.Router)
		for _, expert := range [][]*model.Linear{l.ExpertGate, l.ExpertUp, l.ExpertDown} {
			if len(expert) > 0 {
				size += int64(m.TopK) * elements(expert[0])
			}
		}
	}
	w.Matrices += 2 * int64(n) * size
}

// attended counts the pairs of query rows and cached keys that one KV head's query heads see: causal, and inside the
// layer's window. Positions ascend.
func (w *FLOPs) attended(m *model.Model, layer int, rows, keys []int32) {
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
	w.pairs(m, m.Group(), pairs)
}

// pairs counts query-key pairs of some query heads.
func (w *FLOPs) pairs(m *model.Model, heads, pairs int) {
	w.Attention += 2 * int64(heads) * int64(m.KeyDim+m.ValDim) * int64(pairs)
}

// headed counts n rows through the output matrix.
func (w *FLOPs) headed(m *model.Model, n int) { w.Head += 2 * int64(n) * elements(m.Params.Output) }

func elements(l *model.Linear) int64 {
	if l.Absent() {
		return 0
	}
	return int64(l.Rows) * int64(l.Cols)
}

// FLOPs is what the session has computed since it was opened.
func (s *Session) FLOPs() FLOPs { return s.flops }

// attending counts what a pass asks of a layer: the pairs of its rows with what the layer holds, or with what was selected of
// it.
func (w *FLOPs) attending(m *model.Model, layer int, seq *attention.Seq, kv *kvmanager.Sequence) {
	for g := range m.KVHeads {
		if seq.Select != nil && seq.Select[g] != nil {
			w.pairs(m, m.Group(), len(seq.Pos)*len(seq.Select[g]))
			continue
		}
		w.attended(m, layer, seq.Pos, kv.PositionList(layer, g))
	}
}
