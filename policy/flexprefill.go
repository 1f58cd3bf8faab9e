package policy

import (
	"math"

	"terrace/internal/kernels"
)

// flexPrefill decides per head and prompt which blocks of the prefill attention to compute (Lai et al. 2025, arXiv
// 2502.20766; algorithms.md 5.8). The last block of queries is the sample: its weights, summed per key block, are compared
// with an estimate from means (mean query times mean keys) by the root of the Jensen-Shannon divergence. Where the estimate
// is good (below tau) the head is query-aware: blocks of mean query · mean key are kept, the largest first, until they hold
// gamma of the weight. Otherwise the head follows columns and diagonals of blocks: the fewest that hold gamma of the sample's
// weight each. At least min_budget tokens of keys, the first block of keys and the blocks on the diagonal are always computed.
type flexPrefill struct {
	base
	gamma, tau float64
	block      int
	minBudget  int

	meanQ, meanK []float32 // [blocks, Heads*KeyDim], [blocks, KVHeads*KeyDim]
	buf          []float32
	truth, guess []float32 // [key blocks]
	diagonals    []float32
	blockMap     []float32 // [query blocks, key blocks]
	chosen       []bool
	rank         []int32
	pick         picker
}

func init() {
	register(Info{
		Name:    "flexprefill",
		Summary: "computes the prefill attention blocks that hold most of the weight, chosen per head",
		Paper:   "FlexPrefill: A Context-Aware Sparse Attention Mechanism for Efficient Long-Sequence Inference, arXiv 2502.20766",
		Phase:   PhasePrefill,
		Params: []Param{
			{Name: "gamma", Default: "0.95", Doc: "share of the weight that the chosen blocks hold"},
			{Name: "tau", Default: "0.1", Doc: "a head whose estimate is nearer than this is query-aware"},
			{Name: "min_budget", Default: "512", Doc: "tokens of keys that are computed at least"},
			{Name: "block", Default: "128", Doc: "tokens of a block"},
		},
	}, func(a *args) Policy {
		return &flexPrefill{
			base: a.base(), gamma: a.float("gamma", 0, 1), tau: a.float("tau", 0, 10),
			minBudget: a.int("min_budget", 0, maxTokens), block: a.int("block", 1, 1<<16),
		}
	})
}

func (p *flexPrefill) Needs() Needs {
	return Needs{Weights: p.block, Queries: AllRows, Keys: true}
}

// MaskPrompt fills a block map for each head. Query blocks count from the chunk's first row, key blocks from position 0; the
// chunk should start at a multiple of the block.
func (p *flexPrefill) MaskPrompt(l *Layer, m *Mask) {
	m.Reset(l)
	rows, cols := blocksOf(l.Rows, p.block), blocksOf(l.N, p.block)
	if l.N <= max(p.minBudget, p.block) {
		return // all of it is the least that is computed
	}
	p.means(l, rows, cols)
	for h := range l.Heads {
		p.sample(l, h, cols)
		p.chosen = sized(p.chosen, rows*cols)
		clear(p.chosen)
		if p.divergence() < p.tau {
			p.queryAware(l, m, h, rows, cols)
		} else {
			p.lines(m, rows, cols)
		}
		p.fill(m, h, rows, cols)
	}
}

// means fills the mean query of each block of the chunk and the mean key of each block of positions.
func (p *flexPrefill) means(l *Layer, rows, cols int) {
	width := l.Heads * l.KeyDim
	p.meanQ = sized(p.meanQ, rows*width)
	clear(p.meanQ)
	for r := range l.Rows {
		b := r / p.block
		scale := 1 / float32(min(p.block, l.Rows-b*p.block))
		for i, v := range l.Queries[r*width : (r+1)*width] {
			p.meanQ[b*width+i] += v * scale
		}
	}
	width = l.KVHeads * l.KeyDim
	p.meanK = sized(p.meanK, cols*width)
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

// sample fills truth with the last queries' weight per key block, diagonals per block distance, guess from the means.
func (p *flexPrefill) sample(l *Layer, h, cols int) {
	n := l.N
	p.truth, p.guess, p.diagonals = sized(p.truth, cols), sized(p.guess, cols), sized(p.diagonals, cols)
	clear(p.truth)
	clear(p.diagonals)
	scale := 1 / float32(l.WeightRows)
	for r := range l.WeightRows {
		query := n - l.WeightRows + r
		for key, w := range l.Weights[h][r*n : r*n+query+1] {
			p.truth[key/p.block] += w * scale
			p.diagonals[query/p.block-key/p.block] += w * scale
		}
	}
	last := blocksOf(l.Rows, p.block) - 1
	for b := range p.guess {
		p.guess[b] = p.product(l, h, last, b)
	}
	softmaxRow(p.guess, l.scale())
}

// product is mean query · mean key of a query block of the chunk and a key block.
func (p *flexPrefill) product(l *Layer, h, row, col int) float32 {
	d, g := l.KeyDim, h/l.Group()
	q := p.meanQ[(row*l.Heads+h)*d : (row*l.Heads+h+1)*d]
	return kernels.Dot(q, p.meanK[(col*l.KVHeads+g)*d:(col*l.KVHeads+g+1)*d])
}

// divergence is the root of the Jensen-Shannon divergence (natural logarithm) of truth and guess.
func (p *flexPrefill) divergence() float64 {
	var sum float64
	for i, t := range p.truth {
		a, b := float64(t), float64(p.guess[i])
		if m := (a + b) / 2; m > 0 {
			if a > 0 {
				sum += a * math.Log(a/m) / 2
			}
			if b > 0 {
				sum += b * math.Log(b/m) / 2
			}
		}
	}
	return math.Sqrt(max(sum, 0))
}

// queryAware chooses the blocks of the whole map, softmax by query block, that hold gamma of it.
func (p *flexPrefill) queryAware(l *Layer, m *Mask, h, rows, cols int) {
	p.blockMap = sized(p.blockMap, rows*cols)
	clear(p.blockMap)
	first := m.FirstRow / p.block
	for r := range rows {
		seen := min(first+r+1, cols)
		row := p.blockMap[r*cols : r*cols+seen]
		for c := range row {
			row[c] = p.product(l, h, r, c)
		}
		softmaxRow(row, l.scale())
	}
	for _, i := range p.until(p.blockMap, p.gamma, 0) {
		p.chosen[i] = true
	}
	for r := range rows { // the least budget of each query block: its largest key blocks
		row := p.blockMap[r*cols : (r+1)*cols]
		p.rank = p.pick.best(p.rank[:0], row[:min(first+r+1, cols)], p.minBudget/p.block, 0)
		for _, c := range p.rank {
			p.chosen[r*cols+int(c)] = true
		}
	}
}

// lines chooses key blocks and block distances that hold gamma of the sample's weight each.
func (p *flexPrefill) lines(m *Mask, rows, cols int) {
	least := p.minBudget / p.block
	first := m.FirstRow / p.block
	for _, c := range p.until(p.truth, p.gamma, least) {
		for r := range rows {
			p.chosen[r*cols+int(c)] = true
		}
	}
	for _, d := range p.until(p.diagonals, p.gamma, least) {
		for r := range rows {
			if c := first + r - int(d); c >= 0 && c < cols {
				p.chosen[r*cols+c] = true
			}
		}
	}
}

// until lists the fewest indices, the largest weights first, that hold a share of the sum, and at least `least` of them.
func (p *flexPrefill) until(weights []float32, share float64, least int) []int32 {
	var total float64
	for _, w := range weights {
		total += float64(w)
	}
	lo, hi := max(least, 1), len(weights)
	for lo < hi { // the sum of the best k grows with k
		mid := (lo + hi) / 2
		p.rank = p.pick.best(p.rank[:0], weights, mid, 0)
		var held float64
		for _, i := range p.rank {
			held += float64(weights[i])
		}
		if held >= share*total {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	p.rank = p.pick.best(p.rank[:0], weights, lo, 0)
	return p.rank
}

// fill writes a head's chosen blocks, with the first key block and the diagonal, and without what lies in the future.
func (p *flexPrefill) fill(m *Mask, h, rows, cols int) {
	head := &m.Heads[h]
	head.Dense, head.Block = false, p.block
	for r := range rows {
		head.Start = append(head.Start, int32(len(head.Cols)))
		low, high := (m.FirstRow+r*p.block)/p.block, min((m.FirstRow+min((r+1)*p.block, m.Rows)-1)/p.block, cols-1)
		for c := range high + 1 {
			if c == 0 || c >= low || p.chosen[r*cols+c] {
				head.Cols = append(head.Cols, int32(c))
			}
		}
	}
	head.Start = append(head.Start, int32(len(head.Cols)))
}
