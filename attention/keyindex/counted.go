package keyindex

import "terrace/internal/kvpage"

// Scanned is how many bytes policies have had read of the index, and of the keys themselves, to score tokens with: what lies
// there (codes, scales, bounds, columns, keys in the cache's own element types), once for all queries that are asked together,
// and for product codes the centroids. It is counted where scores are made; clusters, which a policy reads by itself, are not
// in it ([policy.Selection].Scanned).
func (x *Index) Scanned() (n int64) {
	n = x.readBytes
	for i := range x.heads {
		n += x.heads[i].readBytes
	}
	return n
}

// tokenBytes is what one token's part of the scanned copy takes.
func (c *Codes) tokenBytes() int {
	n := kvpage.CodeTileBytes(c.elem, c.dim) / kvpage.Tile
	if len(c.scales) > 0 {
		n += 4
	}
	return n
}

// rowBytes is what one number of a column takes.
func (s *Columns) rowBytes() float64 {
	return float64(s.layout.KTileBytes()) / float64(s.layout.KeyDim*tileColumns)
}

// scanBytes are those of all columns.
func (s *Columns) scanBytes(rows int) int64 { return int64(s.rowBytes() * float64(rows*s.columns)) }

// keyBytes is what a part of the cached keys takes: rows of the head's dim numbers of n tokens.
func (h *sketch) keyBytes(n, rows int) int64 {
	l := &h.view.Layout
	return int64(n) * int64(rows) * int64(l.KBytes()) / int64(l.Tokens*l.KeyDim)
}

// countApprox adds a scan of the whole sketch.
func (h *Head) countApprox() {
	switch {
	case h.product != nil:
		if h.product.Trained() {
			h.readBytes += h.product.scanBytes() + int64(4*len(h.product.kept))
		}
	case h.codes != nil:
		h.readBytes += int64(h.codes.tokens * h.codes.tokenBytes())
	default:
		h.readBytes += h.columns.scanBytes(h.columns.rows)
	}
}

// scanBytes are those of all codes, and of the centroids.
func (p *Product) scanBytes() int64 {
	return int64(p.tokens*codeBytes(p.parts, p.bits)) + int64(4*len(p.codebook.round))
}

// countListed adds a look at single tokens.
func (h *Head) countListed(n int) {
	if h.rounded != nil {
		h.readBytes += int64(n * h.rounded.recordBytes())
		return
	}
	h.readBytes += h.keyBytes(n, h.dim)
}

// countDims adds a scan of a few dimensions of every key, or of all of them.
func (h *Head) countDims(rows int) {
	if h.columns != nil {
		h.readBytes += h.columns.scanBytes(rows)
		return
	}
	h.readBytes += h.keyBytes(h.view.Tokens(), rows)
}

// countBounds adds a look at the bounds of some blocks.
func (h *Head) countBounds(b *Bounds, only []int32) {
	n := b.Blocks()
	if only != nil {
		n = len(only)
	}
	h.readBytes += int64(n) * int64(4*h.dim) // two bounds of two bytes
}

// countScan adds what a TokenScan reads of the first tokens.
func countScan(x *Index, tokens int) {
	for i := range x.heads {
		if c := x.heads[i].codes; c != nil {
			x.readBytes += int64(min(tokens, c.tokens) * c.tokenBytes())
		}
	}
}
