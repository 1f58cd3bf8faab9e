package kvmanager

import (
	"fmt"

	"terrace/internal/kvpage"
	"terrace/kvmanager/slab"
)

// pageClass is the pages of one size, or the frames of blocks of one size, whatever layers they serve.
type pageClass struct {
	tokens int // positions that a page has room for; 0 = a frame, whose positions belong to its block
	pages  slab.Pages
	bytes  int64
}

// layerPages is how the tokens of one layer lie in memory; the zero value is a layer that keeps none of its own.
type layerPages struct {
	heads   int // KV heads
	layouts [kinds]kvpage.Layout
	classes [kinds]*pageClass
}

// blockBytes is what a block of the layer takes in host memory: of its pages, or of its frame.
func (l *layerPages) blockBytes() int64 {
	if l.heads == 0 {
		return 0
	}
	return l.classes[mainPages].bytes
}

// recordBytes is a block's pages without what a frame has behind them.
func (l *layerPages) recordBytes() int { return l.heads * l.layouts[mainPages].PageBytes() }

// layOut works out the pages of every layer and the classes that they come from.
func (m *Manager) layOut() error {
	shape := m.o.Layers
	m.layers, m.first = make([]layerPages, len(shape)), shape.HeadsBefore()
	for i := range shape {
		if !shape.Keeps(i) {
			continue
		}
		kv, l := shape[i].KV, &m.layers[i]
		l.heads = kv.Heads
		l.layouts = [kinds]kvpage.Layout{m.o.Layout.Of(kv), m.RecentFormat().Sized(kv)}
		if err := l.layouts[mainPages].Validate(); err != nil {
			return fmt.Errorf("kvmanager: layer %d: %w", i, err)
		}
		if own, all := &l.layouts[mainPages], &m.o.Layout; own.K.KeyGroup() > all.K.KeyGroup() || (own.K.Quantised() || own.V.Quantised()) && !all.K.Quantised() && !all.V.Quantised() {
			return fmt.Errorf("kvmanager: layer %d: pages of %v in a cache of %v: %w", i, own, all, kvpage.ErrLayout)
		}
		page := l.layouts[mainPages].PageBytes()
		if m.backing == nil {
			l.classes[mainPages] = m.class(page, m.o.Layout.Tokens)
		} else {
			l.classes[mainPages] = m.class(roundUp(kv.Heads*page, frameAlign), 0)
		}
		l.classes[residualPages] = m.class(l.layouts[residualPages].PageBytes(), kvpage.Tile)
		m.unit = common(m.unit, l.classes[mainPages].bytes)
	}
	if m.unit == 0 {
		m.unit = frameAlign // no layer keeps tokens
	}
	return nil
}

// class is the pages of a size.
func (m *Manager) class(bytes, tokens int) *pageClass {
	for _, c := range m.classes {
		if c.bytes == int64(bytes) && c.tokens == tokens {
			return c
		}
	}
	c := &pageClass{tokens: tokens, pages: slab.New(bytes, tokens), bytes: int64(bytes)}
	m.classes = append(m.classes, c)
	return c
}

// common is the greatest common divisor.
func common(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// main is the layout of a layer's main pages.
func (m *Manager) main(layer int) *kvpage.Layout { return &m.layers[layer].layouts[mainPages] }

// recent is the layout of the pages of a quantized layer's window.
func (m *Manager) recent(layer int) *kvpage.Layout { return &m.layers[layer].layouts[residualPages] }

// heads is the KV heads that a layer keeps; 0 where it keeps none of its own.
func (m *Manager) heads(layer int) int { return m.layers[layer].heads }

// units is how many units of memory a block of a layer takes.
func (m *Manager) units(layer int) int { return int(m.layers[layer].blockBytes() / m.unit) }
