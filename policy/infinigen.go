package policy

import (
	"fmt"
	"math"

	"terrace/internal/kernels"
)

// infinigen speculates which tokens the next layer will read while this one computes (Lee et al. 2024, arXiv 2406.19707;
// algorithms.md 5.3). Queries and keys are turned, per KV head, by an orthogonal matrix (the singular vectors of sampled
// queries, computed once a model) that gathers their energy in few columns; after the prompt the `partial` share of
// columns with the largest Σ|q| is chosen, and only those of the turned keys are kept as a sketch. At a step the guessed
// query scores the sketch; as many tokens are read as have a score within alpha of their head's best, on average over all
// heads of the layer, and at most the budget.
//
// With several query heads a KV head, a token ranks by its smallest distance to a head's best score [our reading: the
// distance is what the paper's threshold is on].
type infinigen struct {
	base
	budget  Budget
	alpha   float64
	partial float64
	sample  int
	dense   int
	query   QueryKind

	model  Model
	layers []projection
	q      []float32
	scores []float32
	dist   [][]float32
	pick   picker
}

// projection holds the chosen columns of one layer: [KVHeads][Rank, KeyDim].
type projection [][]float32

func init() {
	register(Info{
		Name:    "infinigen",
		Summary: "guesses the next layer's query, scores a few columns of SVD-turned keys, reads what comes near the best",
		Paper:   "InfiniGen: Efficient Generative Inference of LLMs with Dynamic KV Cache Management, arXiv 2406.19707",
		Phase:   PhaseRead,
		Params: append(budgetParams("20%"),
			Param{Name: "alpha", Default: "4", Doc: "a token is wanted if its score is within alpha of the best"},
			Param{Name: "partial", Aliases: []string{"partial_weight_ratio"}, Default: "0.2", Doc: "share of the columns that is kept as the sketch"},
			Param{Name: "sample", Default: "64", Doc: "newest queries of the prompt that choose the columns"},
			Param{Name: "dense_layers", Default: "2", Doc: "first layers that read everything"},
			Param{Name: "query", Default: "guess", Doc: "guess (from the previous layer's input), exact, or prev_step"}),
	}, func(a *args) Policy {
		return &infinigen{
			base: a.base(), budget: a.budget(), alpha: a.float("alpha", 0, 1e6), partial: a.float("partial", 1e-6, 1),
			sample: a.int("sample", 1, maxTokens), dense: a.int("dense_layers", 0, maxTokens), query: a.query(),
		}
	})
}

// query reads which query a selector scores with.
func (a *args) query() QueryKind { return QueryKind(a.choice("query", "exact", "guess", "prev_step")) }

// Bind takes the model's decomposition.
func (p *infinigen) Bind(m Model) error {
	if m.Decomposition == nil {
		return fmt.Errorf("policy: infinigen: the model's decomposition is missing: %w", ErrModel)
	}
	p.model = m
	p.layers = make([]projection, m.Layers)
	return m.Decomposition.Fits(m)
}

func (p *infinigen) Needs() Needs {
	return Needs{
		Queries: p.sample, Query: p.query, Decomposition: true, Scattered: true,
		Sketch: Sketch{Kind: SketchProjected, Rank: p.rank(p.model.KeyDim)},
	}
}

// rank is the number of columns kept of a key; before a model is known, 0.
func (p *infinigen) rank(dim int) int {
	return max(int(math.Round(p.partial*float64(dim))), min(1, dim))
}

// Project chooses the columns of a KV head by the sum of the sampled queries' magnitudes.
func (p *infinigen) Project(l *Layer, kvHead int, dst []float32) {
	d, rank, group := l.KeyDim, p.rank(l.KeyDim), l.Group()
	basis := p.model.Decomposition.Head(l.Index, kvHead)
	energy := make([]float32, d)
	for r := max(l.Rows-p.sample, 0); r < l.Rows; r++ {
		for h := kvHead * group; h < (kvHead+1)*group; h++ {
			q := l.Queries[(r*l.Heads+h)*d : (r*l.Heads+h+1)*d]
			for c := range d {
				energy[c] += float32(math.Abs(float64(kernels.Dot(basis[c*d:(c+1)*d], q))))
			}
		}
	}
	for i, c := range p.pick.best(nil, energy, rank, 0) {
		copy(dst[i*d:(i+1)*d], basis[int(c)*d:int(c+1)*d])
	}
	if p.layers[l.Index] == nil {
		p.layers[l.Index] = make(projection, l.KVHeads)
	}
	p.layers[l.Index][kvHead] = append([]float32(nil), dst[:rank*d]...)
}

// Select counts the wanted tokens over all heads, then takes that many of each KV head.
func (p *infinigen) Select(l *Layer, read *Picks) {
	read.Reset(l.KVHeads)
	target := p.budget.Of(l, l.N)
	if l.Index < p.dense || fits(l, target) || p.layers[l.Index] == nil {
		read.All = true
		return
	}
	p.dist = heads(p.dist, l)
	wanted := l.Heads // the newest token is always read, whether it is in the cache already or not
	for g := range read.Heads {
		if n := len(p.dist[g]); n > 0 && int(l.Pos[g][n-1]) == l.N-1 {
			p.dist[g] = p.dist[g][:n-1]
		}
		wanted += p.distances(l, g, p.dist[g])
	}
	count := min(wanted/l.Heads, target)
	for g := range read.Heads {
		n := len(p.dist[g])
		read.Heads[g] = p.pick.best(read.Heads[g], p.dist[g], count-1, 0)
		if n < l.Tokens(g) {
			read.Heads[g] = append(read.Heads[g], int32(n))
		}
	}
}

// distances fills dst, of the tokens before the newest, with -(distance to the best score), the smallest over the heads of a group, and counts, over those
// heads, the tokens within alpha.
func (p *infinigen) distances(l *Layer, g int, dst []float32) (wanted int) {
	rank, d, group, n := p.rank(l.KeyDim), l.KeyDim, l.Group(), l.Tokens(g)
	p.q, p.scores = sized(p.q, group*rank), sized(p.scores, group*n)
	queries := l.queries(g)
	for h := range group {
		for c := range rank {
			p.q[h*rank+c] = kernels.Dot(p.layers[l.Index][g][c*d:(c+1)*d], queries[h*d:(h+1)*d])
		}
	}
	l.Scores.Approx(g, p.q, group, p.scores)
	scale := l.scale()
	for i := range dst {
		dst[i] = -infinity
	}
	for h := range group {
		row := p.scores[h*n:][:len(dst)]
		if len(row) == 0 {
			continue
		}
		top := row[0]
		for _, s := range row {
			top = max(top, s)
		}
		for i, s := range row {
			below := (s - top) * scale
			if below > -float32(p.alpha) {
				wanted++
			}
			dst[i] = max(dst[i], below)
		}
	}
	return wanted
}
