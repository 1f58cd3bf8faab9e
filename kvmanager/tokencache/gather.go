package tokencache

import "fmt"

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
	record, t := c.stage.size, c.layout.Tokens
	n := min(len(x.tokens)-x.asked, len(c.gather.halves[half])/record*t)
	x.from, x.half = x.asked, half
	x.asked += n
	c.gather.used[half] = true
	x.t = c.blocks.Gather(w.layer, x.tokens[x.from:x.asked], c.gather.halves[half][:(n+t-1)/t*record])
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

// takeTokens copies tokens that came to slots where they may stay, else beside them.
func (w *selection) takeTokens(tokens []int32, data []byte) {
	c, at := w.c, 0
	picks, s, t := w.picks[0], &c.shardsOf(w.layer)[0], c.layout.Tokens
	for i, index := range tokens {
		for picks[at] != index {
			at++
		}
		c.out.rows[0][at] = row{data: w.keep(s, index, data[i/t*c.stage.size:][:c.stage.size], i%t, w.priorityOf(at)), place: -1}
	}
}
