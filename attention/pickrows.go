package attention

import (
	"sort"

	"terrace/internal/kvpage"
)

// Tokens that a policy chose singly, of pages whose keys lie token by token: their rows are found one after the other, without a
// look at the tiles that they lie in. (512 tiles a head hold a thousand tokens of eight thousand: to list them, and take
// their masks apart again, was a fifth of what picking cost.)

// apart says that the chosen tokens are not whole tiles, from their first 16.
func apart(chosen []int32) bool {
	return len(chosen) >= tileTokens && chosen[tileTokens-1]-chosen[0] >= tileTokens
}

// pickApart lists what a task over single tokens of a part reads, which is what pickTiles would list.
func (c *pick) pickApart(l *list, p *part, bases, chosen []int32) {
	l.reset(p)
	c.findRows(p, bases, chosen)
	c.copyRows(l, p.layout)
	c.turnRows(l, p.layout)
	l.masks = append(l.masks[:0], c.masks...)
}

// findRows notes where the keys and values of the chosen tokens lie, view-order numbers in rising order, in a part whose pages' bases
// start at bases[0].
func (c *pick) findRows(p *part, bases, chosen []int32) {
	keyBytes, valueBytes, values := p.layout.KTileBytes()/kvpage.Tile, p.layout.VRowBytes(), p.layout.ValuesAt()
	c.rows, c.valueRows = grow(c.rows, len(chosen)), grow(c.valueRows, len(chosen))
	rows, valueRows := c.rows[:len(chosen)], c.valueRows[:len(chosen)]
	page, first, end, data := 0, bases[0], bases[1], p.pages[0].Data
	for i, at := range chosen {
		if at >= end {
			page = p.pageOf(bases, page, at)
			first, end, data = bases[page], bases[page+1], p.pages[page].Data
		}
		slot := int(at - first)
		rows[i], valueRows[i] = &data[slot*keyBytes], &data[values+slot*valueBytes]
	}
}

// pageOf is the page of a token that lies behind the one given.
func (p *part) pageOf(bases []int32, page int, at int32) int {
	// Where no page has holes, this is the one.
	guess := page + int(uint32(at-bases[page])/uint32(p.layout.Tokens))
	if guess < len(p.pages) && bases[guess] <= at && at < bases[guess+1] {
		return guess
	}
	return page + sort.Search(len(p.pages)-page-1, func(j int) bool { return bases[page+1+j] > at })
}
