package prefixcache

import (
	"errors"
	"fmt"
	"math"

	"terrace/engine"
	"terrace/kvmanager"
	"terrace/kvmanager/contexts"
)

// extent is which tokens of a layer and KV head go into a record: main tokens from to to-1, and the window where recent is set.
type extent struct {
	from, to int
	recent   bool
}

// record makes a record of a session's KV: extents [Cache.lists], ranks of all tokens of those; nil = none.
func (c *recordForm) record(s *engine.Session, m contexts.Meta, extents []extent, ranks [][]uint32) (*contexts.Record, error) {
	l, rl := c.e.Layouts()
	seq := s.Sequence()
	heads := make([]contexts.Head, 0, len(extents))
	sizes := make([]int, c.sections())
	for i, x := range extents {
		at := c.lists[i]
		l, rl := l.Of(c.shape[at.layer].KV), rl.Sized(c.shape[at.layer].KV)
		pos := seq.PositionList(at.layer, at.head)
		h := contexts.Head{Main: pos[x.from:x.to]}
		if x.recent {
			h.Recent = pos[seq.MainTokens(at.layer, at.head):]
		}
		if ranks != nil && ranks[i] != nil {
			h.Ranks = ranks[i][x.from:x.to]
		}
		heads = append(heads, h)
		sizes[1+at.layer] += pages(len(h.Main), l.Tokens)*l.PageBytes() + pages(len(h.Recent), rl.Tokens)*rl.PageBytes()
	}
	directory := contexts.AppendDirectory(nil, heads)
	if ranks != nil {
		m.Ranks, directory = contexts.RanksVersion, contexts.AppendRanks(directory, heads)
	}
	sizes[0] = len(directory)
	if c.state > 0 {
		sizes[1+len(c.shape)] = c.stateOf(m)
	}
	m.Info = c.info
	return contexts.Build(m, sizes, func(section int, dst []byte) (_ []byte, err error) {
		if section == 0 {
			return append(dst, directory...), nil
		}
		if section > len(c.shape) {
			if c.stateOf(m) == 0 {
				return dst, nil
			}
			dst, known := seq.States().Append(dst, int32(m.First+m.Tokens))
			if !known {
				return nil, fmt.Errorf("prefixcache: the state of recurrent layers after %d tokens is not known: %w", m.First+m.Tokens, engine.ErrOption)
			}
			return dst, nil
		}
		layer := section - 1
		if c.e.KVBelowHost() && c.shape.Keeps(layer) { // blocks are in memory while a layer is held
			if err := seq.Acquire(layer, low(seq, layer, extents[c.first[layer]:c.first[layer+1]])); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, seq.Release(layer)) }()
		}
		for kvHead := range c.shape[layer].KV.Heads {
			x := extents[c.first[layer]+kvHead]
			if dst, _, err = seq.AppendMain(dst, layer, kvHead, x.from, x.to); err != nil {
				return nil, err
			}
			if x.recent {
				if dst, _, err = seq.AppendRecent(dst, layer, kvHead); err != nil {
					return nil, err
				}
			}
		}
		return dst, nil
	})
}

// low is the first position of a layer's extents, one a KV head.
func low(seq *kvmanager.Sequence, layer int, extents []extent) int32 {
	first := int32(math.MaxInt32)
	for g, x := range extents {
		if x.from < x.to {
			first = min(first, seq.PositionList(layer, g)[x.from])
		}
	}
	return first
}

// sections is how many a record has: the directory, one a layer, and the state of recurrent layers where the model has such.
func (c *recordForm) sections() int {
	if c.state > 0 {
		return 2 + len(c.shape)
	}
	return 1 + len(c.shape)
}

// stateOf is how many bytes of state a record has: each block that of its end, a compressed context its last part.
func (c *recordForm) stateOf(m contexts.Meta) int {
	if m.Parts > 0 && m.Part < m.Parts-1 {
		return 0
	}
	return c.state
}

func pages(tokens, pageTokens int) int { return (tokens + pageTokens - 1) / pageTokens }

// keeping stores what of a session's prompt is computed.
type keeping struct {
	p    *Prefix // nil = nothing more is stored
	next int     // block to store
}

// keep stores the blocks of a session's prompt that are complete, while it is read. What cannot be stored is not: the text goes
// on.
func (k *keeping) keep(s *engine.Session) {
	if k.p == nil {
		return
	}
	c := k.p.c
	if c.quantised() && s.Tokens()%c.block != 0 { // the end, or not the chunks that bits depend on
		k.p = nil
		return
	}
	for ; k.next < len(k.p.keys) && (k.next+1)*c.block <= s.Tokens(); k.next++ {
		r, err := c.blockRecord(s, k.p, k.next)
		if err != nil {
			k.p = nil
			return
		}
		c.store.Put(r)
	}
}

// Read implements engine.Prefix: blocks were stored while the prompt was read.
func (p *Prefix) Read(*engine.Session) {}

// Keep implements engine.Prefix: it stores the block that a decoded token has completed.
func (p *Prefix) Keep(s *engine.Session) {
	if p == nil || p.c == nil || !p.c.answer || p.whole || p.keys == nil || s.Tokens()%p.c.block != 0 || s.Tokens() <= len(p.ids) {
		return
	}
	c := p.c
	text := &Prefix{c: c, ids: s.IDs(), under: p.under, salt: p.salt, read: min(p.read, len(p.ids)/c.block)}
	text.root, text.decoded = c.root(len(text.ids), p.under, p.salt, false), c.root(len(text.ids), p.under, p.salt, true)
	text.keys = contexts.Chain(text.decoded, text.ids, c.block)
	copy(text.keys[:text.read], p.keys)
	if r, err := c.blockRecord(s, text, len(text.keys)-1); err == nil { // what cannot be stored is not: the text goes on
		c.store.Put(r)
	}
}

// blockRecord is block i of a session's plain prefix; of quantised KV it must be the last that was read.
func (c *recordForm) blockRecord(s *engine.Session, p *Prefix, i int) (*contexts.Record, error) {
	from, to := i*c.block, (i+1)*c.block
	m := contexts.Meta{Key: p.keys[i], Parent: p.rootOf(i), Root: p.rootOf(i), First: from, Tokens: c.block}
	extents := make([]extent, len(c.lists))
	for j, at := range c.lists {
		extents[j] = extent{from: from, to: to}
		if c.quantised() {
			extents[j] = extent{c.e.MainTokens(from), s.Sequence().MainTokens(at.layer, at.head), true}
		}
	}
	if i > 0 {
		m.Parent = p.keys[i-1]
	}
	return c.record(s, m, extents, nil)
}

// storeWhole stores all KV of a session, whose prompt a policy has compressed, in parts as large as blocks of a plain prefix.
func (c *Cache) storeWhole(s *engine.Session, p *Prefix) {
	records, err := c.parts(s, p, c.ranksOf(s))
	if err == nil {
		c.store.Put(records...)
	}
}

// parts are the records of all KV of a session that has read p's text, with their ranks; nil = none.
func (c *recordForm) parts(s *engine.Session, p *Prefix, ranks [][]uint32) ([]*contexts.Record, error) {
	seq, most := s.Sequence(), 1
	for _, at := range c.lists {
		most = max(most, seq.MainTokens(at.layer, at.head))
	}
	parts := pages(most, c.block)
	var records []*contexts.Record
	for part := range parts {
		extents := make([]extent, len(c.lists))
		for i, at := range c.lists {
			n := seq.MainTokens(at.layer, at.head)
			extents[i] = extent{min(part*c.block, pages(n, c.block)*c.block, n), min((part+1)*c.block, n), part == parts-1}
			if extents[i].from >= n { // a page's first token, and nothing behind it
				extents[i].from, extents[i].to = 0, 0
			}
		}
		m := contexts.Meta{Key: contexts.PartKey(p.context, part), Parent: p.context, Root: p.root, Tokens: len(p.ids), Part: part, Parts: parts}
		m.Slot = c.slotBytes(ranks != nil, c.stateOf(m))
		r, err := c.record(s, m, extents, ranks)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// slotBytes is about the size of a block of a plain prefix of floats, so that parts share its slots; with ranks, and without the
// state of recurrent layers where there is some, they have their own.
func (c *recordForm) slotBytes(ranked bool, state int) int64 {
	if c.quantised() {
		return 0
	}
	l, _ := c.e.Layouts()
	heads := make([]contexts.Head, len(c.lists))
	for i := range heads {
		heads[i].Main = make([]int32, c.block)
		for t := range heads[i].Main {
			heads[i].Main[t] = int32(t)
		}
	}
	directory := contexts.AppendDirectory(nil, heads)
	if ranked {
		for i := range heads {
			heads[i].Ranks = make([]uint32, c.block)
		}
		directory = contexts.AppendRanks(directory, heads)
	}
	sizes := []int{len(directory)}
	for i := range c.shape {
		sizes = append(sizes, c.shape[i].KV.Heads*pages(c.block, l.Tokens)*l.Of(c.shape[i].KV).PageBytes())
	}
	if c.state > 0 {
		sizes = append(sizes, state)
	}
	return contexts.RecordBytes(sizes)
}

// restored is what a record says of its tokens, checked against the engine's shape before anything of them is used.
type restored struct {
	c      *recordForm
	heads  []contexts.Head // [Cache.lists]
	window []bool          // [Layers] it has the end of a quantised cache's window
}

// spans are how many bytes a head's pages take of its layer's section.
func (x *restored) spans(layer int, h contexts.Head) (main, recent int) {
	l, rl := x.c.e.Layouts()
	l, rl = l.Of(x.c.shape[layer].KV), rl.Sized(x.c.shape[layer].KV)
	return pages(len(h.Main), l.Tokens) * l.PageBytes(), pages(len(h.Recent), rl.Tokens) * rl.PageBytes()
}

// layer are the tokens of a layer's section; recent nil = no window.
func (x *restored) layer(layer int, section []byte) (main, recent []kvmanager.Span) {
	g := x.c.shape[layer].KV.Heads
	main, recent = make([]kvmanager.Span, g), make([]kvmanager.Span, g)
	for i := range g {
		h := x.heads[x.c.first[layer]+i]
		n, m := x.spans(layer, h)
		main[i], recent[i] = kvmanager.Span{Pos: h.Main, Data: section[:n]}, kvmanager.Span{Pos: h.Recent, Data: section[n : n+m]}
		section = section[n+m:]
	}
	if !x.window[layer] {
		recent = nil
	}
	return main, recent
}

// parse takes a record's directory apart; its other sections have to have their lengths, not their bytes. Errors wrap
// contexts.ErrDamaged.
func (c *recordForm) parse(r *contexts.Record) (*restored, error) {
	layers := len(c.shape)
	l, _ := c.e.Layouts()
	if r.Sections() != c.sections() {
		return nil, fmt.Errorf("prefixcache: record of %d sections, want %d: %w", r.Sections(), c.sections(), contexts.ErrDamaged)
	}
	if c.state > 0 && len(r.Section(1+layers)) != c.stateOf(r.Meta) {
		return nil, fmt.Errorf("prefixcache: record with %d bytes of state, want %d: %w", len(r.Section(1+layers)), c.stateOf(r.Meta), contexts.ErrDamaged)
	}
	heads, err := contexts.ParseDirectory(r.Section(0), len(c.lists), max(r.Tokens, c.block+c.e.Options().KVWindow+l.Tokens), r.First+r.Tokens, r.Ranks)
	if err != nil {
		return nil, err
	}
	if !c.whole(r, heads) {
		return nil, fmt.Errorf("prefixcache: a block of tokens %d to %d has others: %w", r.First, r.First+r.Tokens, contexts.ErrDamaged)
	}
	x := &restored{c, heads, make([]bool, layers)}
	for layer := range layers {
		bytes := 0
		for _, h := range heads[c.first[layer]:c.first[layer+1]] {
			n, m := x.spans(layer, h)
			bytes += n + m
			x.window[layer] = x.window[layer] || m > 0
		}
		if bytes != len(r.Section(1+layer)) || x.window[layer] && !c.quantised() {
			return nil, fmt.Errorf("prefixcache: layer %d of a record has %d bytes, want %d: %w", layer, len(r.Section(1+layer)), bytes, contexts.ErrDamaged)
		}
	}
	return x, nil
}

// whole reports whether a block of a plain prefix has each of its tokens in every head; a part of a compressed context may have
// any.
func (c *recordForm) whole(r *contexts.Record, heads []contexts.Head) bool {
	if r.Parts > 0 {
		return true
	}
	from, to := r.First, r.First+r.Tokens
	if c.quantised() {
		from, to = c.e.MainTokens(from), c.e.MainTokens(to)
	}
	for _, h := range heads {
		if len(h.Main) != to-from || to > from && (h.Main[0] != int32(from) || h.Main[to-from-1] != int32(to-1)) || c.quantised() && len(h.Recent) != r.First+r.Tokens-to {
			return false
		}
	}
	return true
}
