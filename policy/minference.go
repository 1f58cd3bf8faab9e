package policy

import (
	"fmt"
	"slices"
)

// minference computes prefill attention only along columns and diagonals (Jiang et al. 2024, arXiv 2407.02490; algorithms.md
// 5.7): the weights of the last 64 queries are summed down the columns and along the diagonals; the best `vertical` columns,
// the first ones among them, and the best `slash` diagonals, the newest among them, are computed for every query.
//
// The public sizes are for long prompts: below 32k tokens both are scaled by n/32k, to no fewer than 30 and 50. The authors'
// per-head sizes of two models are shipped (minference_tables.txt) and used on models of their shapes; `pattern=search` looks
// for the best split of the same cost per head instead: the one that holds most of the last queries' weight. Other shapes of heads:
// minference_shapes.go.
type minference struct {
	base
	blockMeans
	vertical, slash           int
	first, newest, leastSlash int
	pattern                   string
	allShapes                 bool          // pattern=search
	table                     [][]lineSizes // [layers][heads]; nil = vertical and slash everywhere

	workers []minferenceWorker
}

// minferenceWorker is the scratch of one thread.
type minferenceWorker struct {
	weights, columns, diagonals []float32
	products                    []float32 // of a query block's mean with those of key blocks
	v, s, blocks                []int32
	pick                        picker
}

const (
	minferenceRows  = 64       // newest queries that vote
	minferenceScale = 32 << 10 // prompt that the sizes are meant for
)

func init() {
	register(Info{
		Name:    "minference",
		Summary: "computes prefill attention along the best columns and diagonals only",
		Paper:   "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse Attention, arXiv 2407.02490",
		Phase:   PhasePrefill,
		Params: []Param{
			{Name: "vertical", Default: "1000", Doc: "columns computed, at 32k tokens or more"},
			{Name: "slash", Default: "6096", Doc: "diagonals computed, at 32k tokens or more"},
			{Name: "first", Default: "30", Doc: "first columns that are always computed; no fewer columns than this"},
			{Name: "newest", Default: "100", Doc: "newest diagonals that are always computed, as far as the slash size goes"},
			{Name: "min_slash", Default: "50", Doc: "no fewer diagonals than this"},
			{Name: "pattern", Default: "auto", Doc: "whose sizes: fixed (vertical and slash for every head), search (the best split of their sum per head), a_shape (the first `vertical` columns and the newest `slash` diagonals), block_sparse (the best blocks of 64 keys by their means, as many as cost the same), llama-3.1-8b or qwen-2.5-7b (the authors' sizes per head); auto: the authors' where the model has that shape and no size is given, otherwise fixed"},
			{Name: "shapes", Default: "lines", Doc: "what pattern=search tries for a head: lines (columns and diagonals), or all (a_shape and block_sparse of the same cost too)"},
		},
	}, func(a *args) Policy {
		p := &minference{
			base: a.base(), vertical: a.int("vertical", 1, maxTokens), slash: a.int("slash", 1, maxTokens),
			first: a.int("first", 1, maxTokens), newest: a.int("newest", 1, maxTokens), leastSlash: a.int("min_slash", 1, maxTokens),
			blockMeans: blockMeans{block: minferenceBlock}, allShapes: a.choice("shapes", "lines", "all") == 1,
		}
		patterns := []string{"auto", "fixed", "search", "a_shape", "block_sparse"}
		for _, t := range minferenceTables() {
			patterns = append(patterns, t.name)
		}
		i := a.choice("pattern", patterns...)
		p.pattern = patterns[i]
		if a.has("vertical") || a.has("slash") {
			if i == 0 {
				p.pattern = "fixed"
			} else if i > 4 {
				a.fail("pattern", "fixed, search, a_shape or block_sparse where sizes are given", nil)
			}
		}
		if p.allShapes && p.pattern != "search" {
			a.fail("shapes", "pattern=search beside all", nil)
		}
		return p
	})
}

// Bind finds the table for a model.
func (p *minference) Bind(m Model) error {
	for _, t := range minferenceTables() {
		switch {
		case p.pattern == t.name && !t.fits(m):
			return fmt.Errorf("policy: minference: pattern=%s is for %d layers of %d heads, the model has %d of %d: %w", t.name, len(t.sizes), len(t.sizes[0]), len(m.Layers), m.Layers[0].Heads, ErrModel)
		case p.pattern == t.name, p.pattern == "auto" && t.fits(m) && presetOf(m).paper:
			p.table = t.sizes
		}
	}
	return nil
}

func (p *minference) Needs() Needs {
	n := Needs{Weights: minferenceRows}
	if p.usesMeans() {
		n.Queries, n.Keys = AllRows, true
	}
	return n
}

// usesMeans says that heads may be block-sparse.
func (p *minference) usesMeans() bool { return p.allShapes || p.pattern == "block_sparse" }

// MaskPrompt chooses columns and diagonals for each head.
func (p *minference) MaskPrompt(l *Layer, m *Mask) {
	m.Reset(l)
	if p.usesMeans() {
		p.means(l)
	}
	p.workers = sized(p.workers, max(l.Workers, 1))
	l.each(l.Heads, func(worker, h int) { p.maskHead(&p.workers[worker], l, h, &m.Heads[h]) })
}

func (p *minference) maskHead(w *minferenceWorker, l *Layer, h int, head *HeadMask) {
	w.weights = sized(w.weights, l.WeightRows*l.N)
	l.Weights(h, w.weights)
	w.sum(l)
	size := lineSizes{p.vertical, p.slash}
	if p.table != nil {
		size = p.table[l.Index][h]
	}
	v, s := p.sizes(l.N, size.vertical, size.slash)
	kind := shapeLines
	switch p.pattern {
	case "search":
		kind, v, s = p.bestShape(w, l, h, v+s)
	case "a_shape":
		kind = shapeA
	case "block_sparse":
		kind, v, s = shapeBlocks, blocksFor(v+s), 0
	}
	if v >= l.N || s >= l.N || kind == shapeBlocks && v >= p.cols {
		return // dense
	}
	head.Dense = false
	switch kind {
	case shapeBlocks:
		p.fillBlocks(w, l, h, v, head)
		return
	case shapeA:
		w.aShape(l.N, v, s)
	default:
		p.choose(w, v, s)
	}
	head.Vertical = append(head.Vertical, w.v...)
	head.Slash = append(head.Slash, w.s...)
}

// sizes scales the numbers of columns and diagonals to a prompt of n tokens.
func (p *minference) sizes(n, vertical, slash int) (v, s int) {
	scale := min(float64(n)/minferenceScale, 1)
	return max(int(float64(vertical)*scale), p.first), max(int(float64(slash)*scale), p.leastSlash)
}

// sum fills columns and diagonals [n] with the head's summed weights.
func (w *minferenceWorker) sum(l *Layer) {
	n := l.N
	w.columns, w.diagonals = sized(w.columns, n), sized(w.diagonals, n)
	clear(w.columns)
	clear(w.diagonals)
	for r := range l.WeightRows {
		query := n - l.WeightRows + r
		row := w.weights[r*n : (r+1)*n]
		for key, x := range row[:query+1] {
			w.columns[key] += x
			w.diagonals[query-key] += x
		}
	}
}

// choose fills v and s with the best columns and distances, the first columns and the newest diagonals among them.
func (p *minference) choose(w *minferenceWorker, vertical, slash int) {
	n := len(w.columns)
	first := min(p.first, vertical, n)
	w.v = w.pick.best(span(w.v[:0], 0, first), w.columns[first:], vertical-first, int32(first))
	newest := min(p.newest, slash, n)
	w.s = w.pick.best(span(w.s[:0], 0, newest), w.diagonals[newest:], slash-newest, int32(newest))
}

// best tries splits of a total into columns and diagonals and returns the one that holds most weight.
func (p *minference) best(w *minferenceWorker, l *Layer, total int) (v, s int) {
	var most float32 = -1
	for _, eighth := range []int{1, 2, 4, 6, 7} {
		tryV := max(total*eighth/8, p.first)
		tryS := max(total-tryV, p.leastSlash)
		p.choose(w, tryV, tryS)
		if held := w.held(l); held > most {
			most, v, s = held, tryV, tryS
		}
	}
	return v, s
}

// held is the weight of the last queries inside the chosen columns and diagonals.
func (w *minferenceWorker) held(l *Layer) float32 {
	n := l.N
	var sum float32
	for r := range l.WeightRows {
		query := n - l.WeightRows + r
		row := w.weights[r*n : (r+1)*n]
		for _, key := range w.v {
			if int(key) <= query {
				sum += row[key]
			}
		}
		for _, distance := range w.s {
			key := query - int(distance)
			if key < 0 {
				break
			}
			if _, counted := slices.BinarySearch(w.v, int32(key)); !counted {
				sum += row[key]
			}
		}
	}
	return sum
}
