package engine

import (
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/model"
)

// PlainLayout is that of the cache's pages without a policy.
func (o *Options) PlainLayout(m *model.Model) kvpage.Layout {
	return kvpage.Layout{K: o.KType, V: o.VType, KeyDim: m.KeyDim, ValueDim: m.ValDim, Tokens: max(o.PageTokens, kvpage.Tile)}
}

// KVBytes is the memory of the pages of one text of n tokens without a policy, at most: with Options.WindowOnly, of layers with a
// sliding window only what later rows read and the pass in progress. Backends that keep copies of KV on a device ignore WindowOnly,
// so it counts for none but native. Validate must have filled o.
func KVBytes(m *model.Model, o Options, n int) int64 {
	l := o.PlainLayout(m)
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
