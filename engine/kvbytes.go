package engine

import (
	"cmp"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/model"
)

// PlainLayout is that of the cache's pages without a policy, but for the widths of keys and values, which are each layer's own.
func (o *Options) PlainLayout() kvpage.Layout {
	return kvpage.Layout{K: o.KType, V: o.VType, Tokens: pageTokens(o)}
}

// pageTokens is how many tokens a page holds.
func pageTokens(o *Options) int { return cmp.Or(o.PageTokens, o.KType.PageTokens()) }

// TokenBytes is what one token takes in pages of that layout, over all layers and KV heads, rounded down.
func TokenBytes(cache cacheshape.Model, l kvpage.Layout) int {
	bytes := 0
	for i := range cache {
		if cache.Keeps(i) {
			bytes += cache[i].KV.Heads * l.Of(cache[i].KV).PageBytes()
		}
	}
	return bytes / l.Tokens
}

// KVBytes is the memory of the pages and the state of one text of n tokens without a policy, at most: with Options.WindowOnly, of layers with a
// sliding window only what later rows read and the pass in progress. Backends that keep copies of KV on a device ignore WindowOnly,
// so it counts for none but native. Validate must have filled o.
func KVBytes(m *model.Model, o Options, n int) int64 {
	cache := m.Cache()
	l, bytes := o.PlainLayout(), 2*cache.StateBytes() // the one that a pass writes, beside it
	for i := range cache {
		if !cache.Keeps(i) {
			continue
		}
		kv, tokens := cache[i].KV, n
		if window := kv.Window; window > 0 && o.WindowOnly && o.Backend == "native" {
			tokens = min(n, kvmanager.SlidingTokens(window, o.ChunkTokens, l.Tokens))
		}
		bytes += int64((tokens+l.Tokens-1)/l.Tokens) * int64(kv.Heads) * int64(l.Of(kv).PageBytes())
	}
	return bytes
}
