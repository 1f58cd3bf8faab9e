package policy

// The two shapes of MInference's heads beside columns and diagonals (algorithms.md 5.7): the first columns and the newest
// diagonals whatever the prompt says (A-shape), and the blocks of 64 keys whose mean products with the block of queries are
// the largest (block-sparse).

// minferenceBlock is the size in tokens of a block-sparse head's blocks.
const minferenceBlock = 64

// aShape fills v and s with the first columns and the newest diagonals.
func (w *minferenceWorker) aShape(n, columns, diagonals int) {
	w.v, w.s = span(w.v[:0], 0, min(columns, n)), span(w.s[:0], 0, min(diagonals, n))
}

// bestBlocks appends the n best key blocks of a query block, ascending: its own, and of those before it the ones with the largest
// product of means.
func (p *minference) bestBlocks(dst []int32, w *minferenceWorker, l *Layer, h, row, n int) []int32 {
	own := (l.N-l.Rows)/minferenceBlock + row
	w.products = sized(w.products, own)
	for c := range w.products {
		w.products[c] = p.product(l, h, row, c)
	}
	return append(w.pick.best(dst, w.products, n-1, 0), int32(own))
}

// fillBlocks writes a head's map of n key blocks a query block.
func (p *minference) fillBlocks(w *minferenceWorker, l *Layer, h, n int, head *HeadMask) {
	head.Block = minferenceBlock
	for row := range p.rows {
		head.Start = append(head.Start, int32(len(head.Cols)))
		head.Cols = p.bestBlocks(head.Cols, w, l, h, row, n)
	}
	head.Start = append(head.Start, int32(len(head.Cols)))
}

// heldInBlocks is the weight of the last queries inside n key blocks a query block.
func (p *minference) heldInBlocks(w *minferenceWorker, l *Layer, h, n int) (sum float32) {
	last := -1
	for r := range l.WeightRows {
		query := l.N - l.WeightRows + r
		if row := (query - (l.N - l.Rows)) / minferenceBlock; row != last {
			w.blocks, last = p.bestBlocks(w.blocks[:0], w, l, h, row, n), row
		}
		weights := w.weights[r*l.N : r*l.N+query+1]
		for _, b := range w.blocks {
			from := int(b) * minferenceBlock
			sum += total(weights[min(from, len(weights)):min(from+minferenceBlock, len(weights))])
		}
	}
	return sum
}

// shape is what a head computes.
type shape int

const (
	shapeLines  shape = iota // columns and diagonals
	shapeA                   // the first and the newest
	shapeBlocks              // blocks of 64
)

// bestShape tries all shapes at the cost of so many columns and diagonals and returns the one that holds most weight of the last
// queries: the sizes of lines or of an A-shape (a fifth of it columns, as the paper's 1,024 and 4,096), or key blocks a query block.
func (p *minference) bestShape(w *minferenceWorker, l *Layer, h, cost int) (kind shape, v, s int) {
	v, s = p.best(w, l, cost)
	if !p.allShapes {
		return shapeLines, v, s
	}
	p.choose(w, v, s)
	most := w.held(l)
	first := cost / 5
	if w.aShape(l.N, first, cost-first); w.held(l) > most {
		most, kind, v, s = w.held(l), shapeA, first, cost-first
	}
	if n := blocksFor(cost); p.heldInBlocks(w, l, h, n) > most {
		kind, v, s = shapeBlocks, n, 0
	}
	return kind, v, s
}

// blocksFor is how many blocks cost what so many columns and diagonals do.
func blocksFor(lines int) int { return max(lines/minferenceBlock, 1) }
