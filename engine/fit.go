package engine

import (
	"sort"

	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/model"
)

// FitReport is what a model needs and what fits into an amount of memory, computed from its shape.
type FitReport struct {
	WeightsBytes     int64 `json:"weights_bytes"`
	BuffersBytes     int64 `json:"buffers_bytes"`       // estimate
	KVBytesPerToken  int64 `json:"kv_bytes_per_token"`  // where every layer keeps it
	KVBytesAtContext int64 `json:"kv_bytes_at_context"` // of a text of ContextTokens, at most (KVBytes)
	ContextTokens    int   `json:"context_tokens"`      // Options.Context
	MemoryBytes      int64 `json:"memory_bytes"`
	LongestContext   int   `json:"longest_context_tokens"` // at most what the model was trained for
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
	r := FitReport{WeightsBytes: m.File.SizeBytes(), MemoryBytes: memoryBytes, BuffersBytes: int64(o.ChunkTokens)*int64(width) + int64(4*m.Vocab) + packedPanelBytes, ContextTokens: o.Context}
	l := o.fitLayout(m)
	r.KVBytesPerToken = int64(m.Layers) * int64(m.KVHeads) * int64(l.PageBytes()) / int64(l.Tokens)
	r.KVBytesAtContext = KVBytes(m, o, o.Context)
	free := memoryBytes - r.WeightsBytes - r.BuffersBytes
	pages := sort.Search(m.Context/l.Tokens+1, func(pages int) bool { return KVBytes(m, o, (pages+1)*l.Tokens) > free })
	r.LongestContext = min(pages*l.Tokens, m.Context)
	return r
}

// fitLayout is the cache's without a policy.
func (o *Options) fitLayout(m *model.Model) kvpage.Layout {
	return kvpage.Layout{K: o.KType, V: o.VType, KeyDim: m.KeyDim, ValueDim: m.ValDim, Tokens: max(o.PageTokens, kvpage.Tile)}
}

// KVBytes is the memory of the pages of one text of n tokens without a policy, at most: with Options.WindowOnly, of layers with a
// sliding window only what later rows read and the pass in progress. Backends that keep copies of KV on a device ignore WindowOnly,
// so it counts for none but native. Validate must have filled o.
func KVBytes(m *model.Model, o Options, n int) int64 {
	l := o.fitLayout(m)
	pages := int64(0)
	for _, window := range sliding(m) {
		tokens := n
		if window > 0 && o.WindowOnly && o.Backend == "native" {
			tokens = min(n, kvmanager.SlidingTokens(window, o.ChunkTokens, l.Tokens))
		}
		pages += int64((tokens + l.Tokens - 1) / l.Tokens)
	}
	return pages * int64(m.KVHeads) * int64(l.PageBytes())
}
