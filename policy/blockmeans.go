package policy

import "terrace/internal/kernels"

// blockMeans are the mean queries and mean keys of blocks of a prompt: a cheap estimate of the attention between two blocks.
// Query blocks count from the chunk's first row, key blocks from position 0; the chunk should start at a multiple of the block.
type blockMeans struct {
	block        int       // tokens
	rows, cols   int       // query blocks of the chunk, key blocks
	meanQ, meanK []float32 // [rows, Heads*KeyDim], [cols, KVHeads*KeyDim]
	buf          []float32
}

// means fills the mean query of each block of the chunk and the mean key of each block of positions.
func (p *blockMeans) means(l *Layer) {
	p.rows, p.cols = blocksOf(l.Rows, p.block), blocksOf(l.N, p.block)
	width := l.Heads * l.KeyDim
	p.meanQ = sized(p.meanQ, p.rows*width)
	clear(p.meanQ)
	for r := range l.Rows {
		b := r / p.block
		scale := 1 / float32(min(p.block, l.Rows-b*p.block))
		for i, v := range l.Queries[r*width : (r+1)*width] {
			p.meanQ[b*width+i] += v * scale
		}
	}
	width = l.KVHeads * l.KeyDim
	p.meanK = sized(p.meanK, p.cols*width)
	clear(p.meanK)
	for g := range l.KVHeads {
		eachKey(l, g, &p.buf, func(i int, key []float32) {
			b := int(l.Pos[g][i]) / p.block
			scale := 1 / float32(min(p.block, l.N-b*p.block))
			for d, v := range key {
				p.meanK[b*width+g*l.KeyDim+d] += v * scale
			}
		})
	}
}

// product is mean query · mean key of a query block of the chunk and a key block.
func (p *blockMeans) product(l *Layer, h, row, col int) float32 {
	d, g := l.KeyDim, h/l.Group()
	q := p.meanQ[(row*l.Heads+h)*d : (row*l.Heads+h+1)*d]
	return kernels.Dot(q, p.meanK[(col*l.KVHeads+g)*d:(col*l.KVHeads+g+1)*d])
}
