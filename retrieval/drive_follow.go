package retrieval

// recordOrder is where the records of a layer's blocks stand among its blocks, where blocks came and went in the middle: the drive
// numbers tokens by record (group·tokens + place) and scores those of inactive blocks too. The zero value is the records' own order.
type recordOrder struct {
	tokens int32   // of a block
	blocks []int32 // [groups] place of the block, -1 = it is not active
}

// of looks at the blocks of a layer that hold its first tokens.
func (o *recordOrder) of(t *Sequence, layer, tokens int) error {
	blocks, err := t.seq.Blocks()
	if err != nil {
		return err
	}
	o.tokens, o.blocks = int32(t.f.blockTokens()), o.blocks[:0]
	if !blocks.Reordered(layer) {
		return nil
	}
	for i := int32(0); i*o.tokens < int32(tokens); i++ {
		group := int(blocks.Stored(layer, i*o.tokens) / o.tokens)
		for len(o.blocks) <= group {
			o.blocks = append(o.blocks, -1)
		}
		o.blocks[group] = i
	}
	return nil
}

// limit is below which number the records of the first tokens lie.
func (o *recordOrder) limit(tokens int) int {
	if len(o.blocks) == 0 {
		return tokens
	}
	return len(o.blocks) * int(o.tokens)
}

// token is the number in the layer of what the drive numbers so; -1 = it is not active.
func (o *recordOrder) token(stored int32) int32 {
	if len(o.blocks) == 0 {
		return stored
	}
	if block := o.blocks[stored/o.tokens]; block >= 0 {
		return block*o.tokens + stored%o.tokens
	}
	return -1
}

// swapped brings a layer in line with blocks that came and went, whose tokens' positions were was: hot tokens stay hot, and what
// came is cold, the drive has it.
func (h *driveScoring) swapped(layer int, was []int32) {
	t, hl := h.c.t, &h.layers[layer]
	pos := t.seq.PositionList(layer, 0)
	hl.hot.rename(pos, was)
	hl.stored = 0
	t.sel.layers[layer].index.MovedTokens(len(pos))
}
