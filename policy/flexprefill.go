package policy

import "math"

// flexPrefill decides per head and prompt which blocks of the prefill attention to compute (Lai et al. 2025, arXiv
// 2502.20766; algorithms.md 5.8). The last block of queries is the sample: its weights, summed per key block, are compared
// with an estimate from means (mean query times mean keys) by the root of the Jensen-Shannon divergence. Where the estimate
// is good (below tau) the head is query-aware: blocks of mean query · mean key are kept, the largest first, until they hold
// gamma of the weight. Otherwise the head follows columns and diagonals of blocks: the fewest that hold gamma of the sample's
// weight each. At least min_budget tokens of keys, the first block of keys and the blocks on the diagonal are always computed.
type flexPrefill struct {
	base
	blockMeans
	gamma, tau float64
	minBudget  int

	workers []flexWorker
}

// flexWorker is the scratch of one thread.
type flexWorker struct {
	weights      []float32
	truth, guess []float32 // [cols]
	diagonals    []float32
	blockMap     []float32 // [rows, cols]
	chosen       []bool    // [rows, cols]
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
			minBudget: a.int("min_budget", 0, maxTokens), blockMeans: blockMeans{block: a.int("block", 1, 1<<16)},
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
	if l.N <= max(p.minBudget, p.block) {
		return // all of it is the least that is computed
	}
	p.means(l)
	p.workers = sized(p.workers, max(l.Workers, 1))
	l.each(l.Heads, func(worker, h int) { p.maskHead(&p.workers[worker], l, m, h) })
}

func (p *flexPrefill) maskHead(w *flexWorker, l *Layer, m *Mask, h int) {
	p.sample(w, l, h)
	w.chosen = sized(w.chosen, p.rows*p.cols)
	clear(w.chosen)
	if w.divergence() < p.tau {
		p.queryAware(w, l, h, m.FirstRow/p.block)
	} else {
		p.lines(w, m.FirstRow/p.block)
	}
	p.fill(w, m, &m.Heads[h])
}

// sample fills truth with the last queries' weight per key block, diagonals per block distance, guess from the means.
func (p *flexPrefill) sample(w *flexWorker, l *Layer, h int) {
	n, cols := l.N, p.cols
	w.weights = sized(w.weights, l.WeightRows*n)
	l.Weights(h, w.weights)
	w.truth, w.guess, w.diagonals = sized(w.truth, cols), sized(w.guess, cols), sized(w.diagonals, cols)
	clear(w.truth)
	clear(w.diagonals)
	scale := 1 / float32(l.WeightRows)
	for r := range l.WeightRows {
		query := n - l.WeightRows + r
		row := w.weights[r*n : r*n+query+1]
		for b := range query/p.block + 1 {
			held := total(row[b*p.block:min((b+1)*p.block, len(row))]) * scale
			w.truth[b] += held
			w.diagonals[query/p.block-b] += held
		}
	}
	for b := range w.guess {
		w.guess[b] = p.product(l, h, p.rows-1, b)
	}
	softmaxRow(w.guess, l.scale())
}

// total is the sum, four at a time.
func total(x []float32) float32 {
	var a, b, c, d float32
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d = a+x[0], b+x[1], c+x[2], d+x[3]
	}
	for _, v := range x {
		a += v
	}
	return a + b + (c + d)
}

// divergence is the root of the Jensen-Shannon divergence (natural logarithm) of truth and guess.
func (w *flexWorker) divergence() float64 {
	var sum float64
	for i, t := range w.truth {
		a, b := float64(t), float64(w.guess[i])
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

// queryAware chooses the blocks of the whole map, softmax by query block, that hold gamma of it; first is the number of the
// chunk's first block of queries.
func (p *flexPrefill) queryAware(w *flexWorker, l *Layer, h, first int) {
	cols := p.cols
	w.blockMap = sized(w.blockMap, p.rows*cols)
	clear(w.blockMap)
	for r := range p.rows {
		seen := min(first+r+1, cols)
		row := w.blockMap[r*cols : r*cols+seen]
		for c := range row {
			row[c] = p.product(l, h, r, c)
		}
		softmaxRow(row, l.scale())
	}
	for _, i := range w.until(w.blockMap, p.gamma, 0) {
		w.chosen[i] = true
	}
	for r := range p.rows { // the least budget of each query block: its largest key blocks
		row := w.blockMap[r*cols : (r+1)*cols]
		w.rank = w.pick.best(w.rank[:0], row[:min(first+r+1, cols)], p.minBudget/p.block, 0)
		for _, c := range w.rank {
			w.chosen[r*cols+int(c)] = true
		}
	}
}

// lines chooses key blocks and block distances that hold gamma of the sample's weight each.
func (p *flexPrefill) lines(w *flexWorker, first int) {
	least := p.minBudget / p.block
	for _, c := range w.until(w.truth, p.gamma, least) {
		for r := range p.rows {
			w.chosen[r*p.cols+int(c)] = true
		}
	}
	for _, d := range w.until(w.diagonals, p.gamma, least) {
		for r := range p.rows {
			if c := first + r - int(d); c >= 0 && c < p.cols {
				w.chosen[r*p.cols+c] = true
			}
		}
	}
}

// until lists the fewest indices, the largest weights first, that hold a share of the sum, and at least `least` of them.
func (w *flexWorker) until(weights []float32, share float64, least int) []int32 {
	var all float64
	for _, x := range weights {
		all += float64(x)
	}
	lo, hi := max(least, 1), len(weights)
	for lo < hi { // the sum of the best k grows with k
		mid := (lo + hi) / 2
		w.rank = w.pick.best(w.rank[:0], weights, mid, 0)
		var held float64
		for _, i := range w.rank {
			held += float64(weights[i])
		}
		if held >= share*all {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	w.rank = w.pick.best(w.rank[:0], weights, lo, 0)
	return w.rank
}

// fill writes a head's chosen blocks, with the first key block and the diagonal, and without what lies in the future.
func (p *flexPrefill) fill(w *flexWorker, m *Mask, head *HeadMask) {
	head.Dense, head.Block = false, p.block
	for r := range p.rows {
		head.Start = append(head.Start, int32(len(head.Cols)))
		low, high := (m.FirstRow+r*p.block)/p.block, min((m.FirstRow+min((r+1)*p.block, m.Rows)-1)/p.block, p.cols-1)
		for c := range high + 1 {
			if c == 0 || c >= low || w.chosen[r*p.cols+c] {
				head.Cols = append(head.Cols, int32(c))
			}
		}
	}
	head.Start = append(head.Start, int32(len(head.Cols)))
}
