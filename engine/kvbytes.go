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

// KVBytes is the memory of the pages and the state of one text of n tokens without a policy, at most, all of them its prompt: with
// Options.WindowOnly, of layers with a sliding window only what later rows read and the pass in progress. Backends that keep copies of KV on
// a device ignore WindowOnly, so it counts for none but native. Quantised KV has its newest tokens in f16, and those of a pass in one layer.
// Validate must have filled o.
func KVBytes(m *model.Model, o Options, n int) int64 {
	kv, err := kvmanager.New(kvmanager.Options{Layers: CacheOf(m, o), Layout: o.PlainLayout(), Window: o.KVWindow, WindowSet: o.KVWindowSet})
	if err != nil {
		return 0 // Open says so
	}
	most, _ := kv.Most(kvmanager.Course{Prompt: n, Slides: slides(&o, true), Rows: func(left int) int { return min(left, o.ChunkTokens) }})
	return most
}

// slides reports whether a text, plain or under a policy that acts, keeps windows only.
func slides(o *Options, plain bool) bool { return plain && o.WindowOnly && o.Backend == "native" }
