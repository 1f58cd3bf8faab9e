package tokencache

import (
	"cmp"
	"fmt"
	"slices"
)

// askTokens begins to read the next single tokens of a layer, as many as there is room for.
func (w *selection) askTokens() {
	c, x := w.c, &w.single
	if x.t != nil || x.asked == len(x.tokens) {
		return
	}
	half := c.gather.half()
	if half < 0 {
		return
	}
	record, t := w.g.shards()*w.g.recordBytes(), c.tokens
	n := min(len(x.tokens)-x.asked, len(c.gather.halves[half])/record*t)
	x.from, x.half = x.asked, half
	x.asked += n
	c.gather.used[half] = true
	x.records = x.records[:0]
	for _, index := range x.tokens[x.from:x.asked] {
		x.records = append(x.records, c.blocks.Stored(w.layer, index))
	}
	x.t = c.blocks.Gather(w.layer, x.records, c.gather.halves[half][:(n+t-1)/t*record])
}

// finishTokens waits for the single tokens of a layer and takes them.
func (w *selection) finishTokens() error {
	for x := &w.single; x.t != nil || x.asked < len(x.tokens); {
		if w.askTokens(); x.t == nil {
			return w.noStaging()
		}
		if err := x.end(w.c); err != nil {
			return fmt.Errorf("tokencache: layer %d: %w", w.layer, err)
		}
		w.takeTokens(x.tokens[x.from:x.asked], w.c.gather.halves[x.half])
	}
	return nil
}

// takeTokens copies what each shard has picked of tokens that came, to slots where they may stay, else beside them.
func (w *selection) takeTokens(tokens []int32, data []byte) {
	c, shards := w.c, w.c.shardsOf(w.layer)
	record, size, t := w.g.shards()*w.g.recordBytes(), w.g.recordBytes(), c.tokens
	for shard, picks := range w.picks {
		s := &shards[shard]
		for i, index := range tokens {
			at, here := slices.BinarySearch(picks, index)
			if !here || s.has(index) {
				continue // another head's
			}
			mine := data[i/t*record+shard*size:][:size]
			c.out.rows[shard][at] = row{data: w.keep(s, index, mine, i%t, w.priorityOf(shard, at)), place: -1}
		}
	}
}

// sortTokens puts the tokens that are still to be read one by one in the order in which the backing store has them, each once.
func (w *selection) sortTokens() {
	begun := w.single.tokens[:w.single.asked]
	tokens, blocks := w.single.tokens[w.single.asked:], w.c.blocks
	if len(w.c.shardsOf(w.layer)) > 1 {
		slices.Sort(tokens)
		tokens = slices.Compact(tokens)
	}
	if blocks.Reordered(w.layer) {
		slices.SortFunc(tokens, func(a, b int32) int { return cmp.Compare(blocks.Stored(w.layer, a), blocks.Stored(w.layer, b)) })
	}
	w.single.tokens = append(begun, tokens...)
}
