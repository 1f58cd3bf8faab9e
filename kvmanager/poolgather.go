package kvmanager

import (
	"errors"
	"fmt"

	"terrace/offload"
)

// Gatherer is a Lower that hands out single tokens, so that nothing else of their groups is moved.
type Gatherer interface {
	Lower
	// Gathers reports whether it can, for this cache.
	Gathers() bool
	// Gather fills dst with tokens of a layer, given by rising index in what is stored under a number: one after another in
	// ⌈n/16⌉ records, as if they were the only ones.
	Gather(seq uint64, layer int, tokens []int32, dst []byte) Transfer
}

// gathering is where single tokens arrive: two layers' at a time, the one that is computed and the next.
type gathering struct {
	from   Gatherer // nil = whole groups are read
	halves [2][]byte
	used   [2]bool
}

// tokenWork is the single tokens that one layer's selection lacks.
type tokenWork struct {
	tokens []int32
	asked  int // of them that are being read or were
	from   int // first of those being read
	t      Transfer
	half   int
}

// initGathering divides the staging of n records where the lower tier hands out single tokens; it returns what is left for
// whole groups.
func (p *Pool) initGathering(n, recordBytes int) (groups int) {
	g, ok := p.m.lower.(Gatherer)
	if !ok || !g.Gathers() || p.o.ByHead || p.o.Pages {
		return n
	}
	groups = max(4, n/8)
	each := max((n-groups)/2, 1)
	p.gather.from = g
	for i := range p.gather.halves {
		p.gather.halves[i] = offload.AlignedBytes(each * recordBytes)
	}
	return groups
}

// bytes is the memory that single tokens arrive in.
func (g *gathering) bytes() int64 { return int64(len(g.halves[0]) + len(g.halves[1])) }

func (g *gathering) close() {
	for i := range g.halves {
		if g.halves[i] != nil {
			offload.FreeAligned(g.halves[i])
		}
	}
	*g = gathering{}
}

// gathers reports whether a block's tokens are read one by one.
func (p *Pool) gathers(b *block) bool {
	return p.gather.from != nil && b.home == p.s.home && b.move == nil
}

// askTokens begins to read the next single tokens of a layer, as many as there is room for.
func (p *Pool) askTokens(layer int) {
	w, g := &p.work[layer].single, &p.gather
	if w.t != nil || w.asked == len(w.tokens) {
		return
	}
	half := 0
	if g.used[half] {
		half = 1
	}
	if g.used[half] {
		return
	}
	record := p.stage.size
	n := min(len(w.tokens)-w.asked, len(g.halves[half])/record*p.m.o.Layout.Tokens)
	w.from, w.half = w.asked, half
	w.asked += n
	g.used[half] = true
	w.t = g.from.Gather(p.s.home.seq, layer, w.tokens[w.from:w.asked], g.halves[half][:(n+p.m.o.Layout.Tokens-1)/p.m.o.Layout.Tokens*record])
}

// finishTokens waits for the single tokens of a layer and takes them.
func (p *Pool) finishTokens(layer int) error {
	w := &p.work[layer].single
	for w.t != nil || w.asked < len(w.tokens) {
		if p.askTokens(layer); w.t == nil {
			return fmt.Errorf("kvmanager: layer %d: no staging is free: %w", layer, ErrBudget)
		}
		if err := p.endTokens(w); err != nil {
			return fmt.Errorf("kvmanager: layer %d: %w", layer, err)
		}
		p.takeTokens(layer, w.tokens[w.from:w.asked], p.gather.halves[w.half])
	}
	return nil
}

// endTokens waits for a read. The memory of one that stalls is not used again: the tier may still write there.
func (p *Pool) endTokens(w *tokenWork) error {
	err := p.m.awaitRead(w.t, w.asked-w.from)
	w.t = nil
	p.gather.used[w.half] = errors.Is(err, ErrStalled)
	return err
}

// takeTokens copies tokens that came to slots where they may stay, else beside the pool.
func (p *Pool) takeTokens(layer int, tokens []int32, data []byte) {
	picks, ln, t, at := p.work[layer].picks[0], &p.layerLanes(layer)[0], p.m.o.Layout.Tokens, 0
	for i, index := range tokens {
		for picks[at] != index {
			at++
		}
		p.out.rows[0][at] = poolRow{data: p.keep(layer, ln, index, data[i/t*p.stage.size:][:p.stage.size], i%t, p.worthOf(&p.work[layer], at)), slot: -1}
	}
}

// Insert takes tokens of a layer, by rising index, from gathered records into the pool, as far as there are slots.
func (p *Pool) Insert(layer int, tokens []int32, data []byte) {
	if !p.Serves(layer) || p.o.ByHead || p.o.Pages {
		return
	}
	ln, t := &p.layerLanes(layer)[0], p.m.o.Layout.Tokens
	for i, index := range tokens {
		if int(index) >= len(ln.at) || ln.at[index] >= 0 {
			continue
		}
		if s := p.place(ln, index, p.freshWorth(ln)); s >= 0 {
			p.copyUnit(p.slot(ln, s), data[i/t*p.stage.size:][:p.stage.size], i%t)
		}
	}
}
