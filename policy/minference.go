package policy

import "slices"

// minference computes prefill attention only along columns and diagonals (Jiang et al. 2024, arXiv 2407.02490; algorithms.md
// 5.7): the weights of the last 64 queries are summed down the columns and along the diagonals; the best `vertical` columns,
// the first ones among them, and the best `slash` diagonals, the newest among them, are computed for every query.
//
// The public sizes are for long prompts: below 32k tokens both are scaled by n/32k, to no fewer than 30 and 50. The public
// per-head tables of two models are not shipped; `pattern=search` looks for the best split of the same cost per head
// instead: the one that holds most of the last queries' weight.
type minference struct {
	base
	vertical, slash           int
	first, newest, leastSlash int
	search                    bool

	columns, diagonals []float32
	v, s               []int32
	pick               picker
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
			{Name: "pattern", Default: "fixed", Doc: "fixed sizes for every head, or search: the best split of their sum per head"},
		},
	}, func(a *args) Policy {
		return &minference{
			base: a.base(), vertical: a.int("vertical", 1, maxTokens), slash: a.int("slash", 1, maxTokens),
			first: a.int("first", 1, maxTokens), newest: a.int("newest", 1, maxTokens), leastSlash: a.int("min_slash", 1, maxTokens),
			search: a.choice("pattern", "fixed", "search") == 1,
		}
	})
}

func (p *minference) Needs() Needs { return Needs{Weights: minferenceRows} }

// MaskPrompt chooses columns and diagonals for each head.
func (p *minference) MaskPrompt(l *Layer, m *Mask) {
	m.Reset(l)
	n := l.N
	for h := range l.Heads {
		p.sum(l, h)
		v, s := p.sizes(n, p.vertical, p.slash)
		if p.search {
			v, s = p.best(l, h, v+s)
		}
		if v >= n || s >= n {
			continue // dense
		}
		head := &m.Heads[h]
		head.Dense = false
		p.choose(v, s)
		head.Vertical = append(head.Vertical, p.v...)
		head.Slash = append(head.Slash, p.s...)
	}
}

// sizes scales the numbers of columns and diagonals to a prompt of n tokens.
func (p *minference) sizes(n, vertical, slash int) (v, s int) {
	scale := min(float64(n)/minferenceScale, 1)
	return max(int(float64(vertical)*scale), p.first), max(int(float64(slash)*scale), p.leastSlash)
}

// sum fills columns and diagonals [n] with a head's summed weights.
func (p *minference) sum(l *Layer, h int) {
	n := l.N
	p.columns, p.diagonals = sized(p.columns, n), sized(p.diagonals, n)
	clear(p.columns)
	clear(p.diagonals)
	for r := range l.WeightRows {
		query := n - l.WeightRows + r
		row := l.Weights[h][r*n : (r+1)*n]
		for key, w := range row[:query+1] {
			p.columns[key] += w
			p.diagonals[query-key] += w
		}
	}
}

// choose fills v and s with the best columns and distances, the first columns and the newest diagonals among them.
func (p *minference) choose(vertical, slash int) {
	n := len(p.columns)
	first := min(p.first, vertical, n)
	p.v = p.pick.best(span(p.v[:0], 0, first), p.columns[first:], vertical-first, int32(first))
	newest := min(p.newest, slash, n)
	p.s = p.pick.best(span(p.s[:0], 0, newest), p.diagonals[newest:], slash-newest, int32(newest))
}

// best tries splits of a total into columns and diagonals and returns the one that holds most weight.
func (p *minference) best(l *Layer, h, total int) (v, s int) {
	var most float32 = -1
	for _, eighth := range []int{1, 2, 4, 6, 7} {
		tryV := max(total*eighth/8, p.first)
		tryS := max(total-tryV, p.leastSlash)
		p.choose(tryV, tryS)
		if held := p.held(l, h); held > most {
			most, v, s = held, tryV, tryS
		}
	}
	return v, s
}

// held is the weight of the last queries inside the chosen columns and diagonals.
func (p *minference) held(l *Layer, h int) float32 {
	n := l.N
	var sum float32
	for r := range l.WeightRows {
		query := n - l.WeightRows + r
		row := l.Weights[h][r*n : (r+1)*n]
		for _, key := range p.v {
			if int(key) <= query {
				sum += row[key]
			}
		}
		for _, distance := range p.s {
			key := query - int(distance)
			if key < 0 {
				break
			}
			if _, counted := slices.BinarySearch(p.v, int32(key)); !counted {
				sum += row[key]
			}
		}
	}
	return sum
}
