package engine

import (
	"cmp"
	"fmt"

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

// CacheOf is what each layer of a model keeps, with the types that some layers have of their own. Validate must have filled o.
func CacheOf(m *model.Model, o Options) cacheshape.Model {
	cache, err := marked(m, &o)
	if err != nil {
		panic(err) // Validate has looked
	}
	return cache
}

func marked(m *model.Model, o *Options) (cacheshape.Model, error) {
	cache := m.Cache()
	if err := (kvpage.Types{K: o.KType, V: o.VType, Own: o.KVOwn}).Mark(cache); err != nil {
		return nil, fmt.Errorf("engine: %w: %w", err, ErrOption)
	}
	return cache, nil
}

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
// so it counts for none but native. Quantised KV has its newest tokens in f16, and those of a pass in one layer. Validate must have filled o.
func KVBytes(m *model.Model, o Options, n int) int64 {
	cache := CacheOf(m, o)
	l, recent, widest := o.PlainLayout(), kvmanager.WindowFormat(), int64(0)
	bytes, window, group := 2*cache.StateBytes(), 0, 0 // the one that a pass writes, beside it
	if l.K.Quantised() || l.V.Quantised() {
		window, group = o.KVWindow, l.K.KeyGroup()
		if window == 0 && !o.KVWindowSet {
			window = kvmanager.DefaultWindow
		}
	}
	for i := range cache {
		if !cache.Keeps(i) {
			continue
		}
		kv, tokens := cache[i].KV, n
		if window := kv.Window; window > 0 && o.WindowOnly && o.Backend == "native" {
			tokens = min(n, kvmanager.SlidingTokens(window, o.ChunkTokens, l.Tokens))
		}
		if group > 0 {
			late := min(tokens, window+group-1) // before a group leaves
			pages := (late + recent.Tokens - 1) / recent.Tokens
			coming := (min(tokens, late+o.ChunkTokens)+recent.Tokens-1)/recent.Tokens - pages
			page := int64(kv.Heads) * int64(recent.Sized(kv).PageBytes())
			bytes, widest = bytes+int64(pages)*page, max(widest, int64(coming)*page)
			tokens = max(0, tokens-window) / group * group
		}
		bytes += int64((tokens+l.Tokens-1)/l.Tokens) * int64(kv.Heads) * int64(l.Of(kv).PageBytes())
	}
	return bytes + widest
}
