package engine

import (
	"terrace/internal/kvpage"
	"terrace/model"
)

// FitReport is what a model needs and what fits into an amount of memory, computed from its shape.
type FitReport struct {
	WeightsBytes    int64 `json:"weights_bytes"`
	BuffersBytes    int64 `json:"buffers_bytes"` // estimate
	KVBytesPerToken int64 `json:"kv_bytes_per_token"`
	MemoryBytes     int64 `json:"memory_bytes"`
	LongestContext  int   `json:"longest_context_tokens"` // at most what the model was trained for
}

// packedPanelBytes is the room that unpacked weight panels take in the caches of the workers.
const packedPanelBytes = 8 << 20

// Fit computes what of the model fits: weights are mapped whole, activations are those of one prefill chunk, KV pages are
// whole. Validate must have filled o.
func Fit(m *model.Model, o Options, memoryBytes int64) FitReport {
	width := 4 * (2*m.Hidden + 2*m.Heads*m.KeyDim + m.KVHeads*(m.KeyDim+m.ValDim) + m.Heads*m.ValDim)
	for i := range m.Params.Layers {
		if up := m.Params.Layers[i].Up; up != nil {
			width = max(width, 4*(3*m.Hidden+2*m.Heads*m.KeyDim+2*up.Rows))
		}
	}
	l := kvpage.Layout{K: o.KType, V: o.VType, KeyDim: m.KeyDim, ValueDim: m.ValDim, Tokens: max(o.PageTokens, 16)}
	r := FitReport{WeightsBytes: m.File.SizeBytes(), MemoryBytes: memoryBytes, BuffersBytes: int64(o.ChunkTokens)*int64(width) + int64(4*m.Vocab) + packedPanelBytes}
	page := int64(m.Layers) * int64(m.KVHeads) * int64(l.PageBytes())
	r.KVBytesPerToken = page / int64(l.Tokens)
	if free := memoryBytes - r.WeightsBytes - r.BuffersBytes; free >= page {
		r.LongestContext = int(min(free/page*int64(l.Tokens), int64(m.Context)))
	}
	return r
}
