package engine

import (
	"fmt"

	"terrace/kvmanager/tokencache"
)

// openPool sizes the pool: what the budget leaves beside sketches, staging and the newest tokens' blocks.
func (p *placement) openPool(n int) error {
	e, o := p.s.e, tokencache.Options{Pages: !p.run.needs.Scattered, ByHead: !p.run.needs.Together}
	for l, ok := range p.pooled {
		if ok {
			o.Layers = append(o.Layers, l)
		}
	}
	o.StagingBytes = min(8<<20, int64(n*e.kvBytesPerToken()/e.m.Layers)) // no more than a layer has
	if b := e.o.KVBudgetBytes; b > 0 {
		o.StagingBytes = min(o.StagingBytes, b/32)
	}
	var err error
	if p.pool, err = tokencache.New(p.s.seq, o); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.tiers.pools++
	if pl := p.run.set.Placer; pl != nil {
		p.setBalance()
		pl.PlacePrompt(n, p.hotCapacity(n))
		if pl.WholeTokens() {
			p.pool.SetHot(func(position int32) bool { return pl.Hot(int(position)) })
		}
	}
	p.share(n)
	return nil
}

// share sets what the pool may hold of n tokens beside those of the other sessions.
func (p *placement) share(n int) {
	p.sharers = p.s.e.tiers.pools
	slots := p.capacity(n)
	if pl := p.run.set.Placer; pl != nil {
		slots = (pl.HotTokens(n, p.hotCapacity(n)) + p.pool.GranuleTokens() - 1) / p.pool.GranuleTokens()
	}
	p.setLimit(slots)
}

// hotCapacity is how many of n tokens may be hot.
func (p *placement) hotCapacity(n int) int { return min(n, p.capacity(n)*p.pool.GranuleTokens()) }

// capacity is how many slots a lane can have once the prompt is read: all sessions' pools have equal shares of the budget.
func (p *placement) capacity(n int) int {
	e, layers := p.s.e, 0
	for _, ok := range p.pooled {
		if ok {
			layers++
		}
	}
	if e.o.KVBudgetBytes == 0 {
		return n
	}
	done := 0
	for i := range p.run.state {
		if p.run.state[i].index != nil {
			done++
		}
	}
	block := int64(e.kv.BlockBytes())
	left := (e.o.KVBudgetBytes - e.tiers.charged) / int64(max(e.tiers.pools, 1))
	if p.hie == nil {
		left -= p.sketchBytes * int64(layers) / int64(max(done, 1)) // sketches of all layers
	}
	left -= p.run.below.MostBytes() + p.pool.FixedBytes() + int64(e.m.Layers+8)*block // staging, the newest tokens
	left -= int64(4 * n / p.pool.GranuleTokens() * p.pool.Shards())                   // tables
	left -= int64(n) / 4 * int64(e.kvBytesPerToken()/e.m.Layers)                      // a step's selection
	return int(max(left, 0)) / p.pool.Shards() / (p.pool.SlotBytes() + p.hie.tokenBytes())
}

// fill is how many tokens of a layer can be kept while the prompt's other layers are still read whole.
func (p *placement) fill(e *Engine, layer, n int) int {
	if e.o.KVBudgetBytes == 0 {
		return n
	}
	blocks := (n + e.kv.Layout().Tokens - 1) / e.kv.Layout().Tokens
	ring := int64(2*blocks+e.o.ChunkTokens/8) * int64(e.kv.BlockBytes())
	less := int(ring) / p.pool.Shards() / p.pool.SlotBytes()
	return max(p.capacity(n)-less, 0) * p.pool.GranuleTokens()
}
