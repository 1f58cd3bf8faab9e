package offload

import (
	"context"
	"fmt"

	"terrace/csdshim"
)

// Gathers reports whether single tokens can be read.
func (c *Chain) Gathers() bool { return c.down.Gathers() }

// gathering is the part of a Gather that one level does.
type gathering struct {
	tokens []int32
	at     []int    // their places among those that were asked for
	groups []Record // without data
	dst    []byte
}

func (g *gathering) add(k Key, token int32, at int) {
	g.tokens, g.at = append(g.tokens, token), append(g.at, at)
	if n := len(g.groups); n == 0 || g.groups[n-1].Key != k {
		g.groups = append(g.groups, Record{Key: k})
	}
}

// Gather reads single tokens as Scorer.Gather does: each from the highest level that has it.
func (c *Chain) Gather(ctx context.Context, seq uint64, layer int, tokens []int32, dst []byte) (t csdshim.Timing, err error) {
	var up, down gathering
	shape, gathers := c.Shape(), c.up.Gathers()
	if layer < 0 || layer >= len(shape.Layers) || !shape.Layers.Keeps(layer) || len(dst) != shape.tokensBytes(layer, len(tokens)) {
		return t, fmt.Errorf("offload: %s: %d tokens of layer %d into %d bytes: %w", c.Name(), len(tokens), layer, len(dst), ErrShape)
	}
	c.mu.Lock()
	for i, token := range tokens {
		k := Key{Seq: seq, Layer: int32(layer), Group: token / int32(shape.GroupTokens)}
		u := c.unit(k)
		c.touch(u)
		if gathers && u.has(k) {
			up.add(k, token, i)
		} else {
			down.add(k, token, i)
		}
	}
	for i := range up.groups {
		c.unit(up.groups[i].Key).users++
	}
	c.use.Above += int64(len(up.groups))
	c.use.Below += int64(len(down.groups))
	c.mu.Unlock()
	if len(down.tokens) == 0 || len(up.tokens) == 0 {
		up.dst, down.dst = dst, dst
	} else {
		up.dst, down.dst = make([]byte, shape.tokensBytes(layer, len(up.tokens))), make([]byte, shape.tokensBytes(layer, len(down.tokens)))
	}
	var above *Ticket
	if len(up.tokens) > 0 {
		above = c.up.Gather(Demand, seq, layer, up.tokens, up.dst)
	}
	if len(down.tokens) > 0 {
		err = c.gatherBelow(ctx, seq, layer, down.tokens, down.dst)
	}
	if above != nil {
		upErr := c.finishAbove(ctx, above)
		c.release(up.groups, passing(ctx, upErr), false)
		if upErr != nil && err == nil {
			err = c.gatherBelow(ctx, seq, layer, up.tokens, up.dst)
		}
	}
	if err != nil {
		return t, err
	}
	if len(down.tokens) > 0 && len(up.tokens) > 0 {
		up.merge(shape, layer, dst)
		down.merge(shape, layer, dst)
	}
	if len(down.groups) > 0 && gathers {
		c.raise(ctx, down.groups)
	}
	return t, nil
}

// gatherBelow reads single tokens from below. What hands them out itself is not retried here: the queue above the chain does that.
func (c *Chain) gatherBelow(ctx context.Context, seq uint64, layer int, tokens []int32, dst []byte) error {
	if s, ok := c.below.(tokenStore); ok {
		_, err := s.Gather(ctx, seq, layer, tokens, dst)
		return err
	}
	return finish(ctx, c.down.Gather(Demand, seq, layer, tokens, dst))
}

// merge puts the tokens that one level has read in their places in dst.
func (g *gathering) merge(shape Shape, layer int, dst []byte) {
	l, per, size, head := shape.PageOf(layer), shape.GroupTokens, shape.RecordBytes(layer), shape.HeadBytes(layer)
	for i, at := range g.at {
		from, to := g.dst[i/per*size:][:size], dst[at/per*size:][:size]
		for h := 0; h < size; h += head {
			copy(l.KRow(to[h:h+head], at%per), l.KRow(from[h:h+head], i%per))
			if !l.ValueInKey {
				copy(l.VRow(to[h:h+head], at%per), l.VRow(from[h:h+head], i%per))
			}
		}
	}
}
