package policy

import (
	"fmt"
	"math"

	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
)

// infinigen speculates which tokens the next layer will read while this one computes (Lee et al. 2024, arXiv 2406.19707;
// algorithms.md 5.3). Queries and keys are turned, per KV head, by an orthogonal matrix (the singular vectors of sampled
// queries, computed once a model) that gathers their energy in few columns; after the prompt the `partial` share of
// columns with the largest Σ|q|, over all of its queries (sample=N: the newest N), is chosen, and only those of the turned keys are kept as a sketch. At a step the guessed
// query scores the sketch; the tokens with a score within alpha of their head's best are counted, on average over all heads
// of the layer, and each head reads that many of its own best.
//
// Heads that share a KV head read what any of them wants, at most the budget: then the tokens that lie highest above the
// last that a head wants [our reading: the paper's models have a KV head for each query head].
//
// alpha decides the quality: 4 is what the paper ran OPT with, Llama-2 had 4 to 7. SmolLM2 after 2,000 tokens of one text, KL to full attention and tokens read in a layer that is not dense: alpha=4 1.25, 107;
// 5 0.31, 175; 6 0.14, 254; 8 0.015, 365; no threshold and partial=1 0.009, 404, as the oracle at that budget (0.007).
type infinigen struct {
	base
	budget  Budget
	alpha   float64
	partial float64
	sample  int
	dense   int
	query   QueryKind
	stored  bool

	basis  *Decomposition // of the model's queries
	kv     cacheshape.KV  // of the layers that it acts on
	layers []projection

	speculating
}

// speculating is what a step's guess works in, [infinigen].energy kept from the prompt.
type speculating struct {
	energy [][]float32 // [Layers, Heads, KeyDim] Σ|q| over the prompt, of all columns; with sample=N none
	turned [][]float32 // [KVHeads] scratch
	heads  []speculation
	pick   picker
}

// speculation is one KV head's part of a choice, with its scratch: heads may be on different threads.
type speculation struct {
	q      []float32 // [group, Rank]
	scores []float32 // [group, tokens]
	margin []float32
	wanted int
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
			Param{Name: "sample", Default: "0", Doc: "newest queries of the prompt that choose the columns; 0: all"},
			Param{Name: "dense_layers", Default: "2", Doc: "first layers that read everything"},
			Param{Name: "query", Default: "guess", Doc: "guess (from the previous layer's input), exact, or prev_step"}, sketchParam),
	}, func(a *args) Policy {
		return &infinigen{
			base: a.base(), budget: a.budget(), alpha: a.float("alpha", 0, 1e6), partial: a.float("partial", 1e-6, 1),
			sample: a.int("sample", 0, maxTokens), dense: a.int("dense_layers", 0, maxTokens), query: a.query(),
			stored: a.stored(),
		}
	})
}

// query reads which query a selector scores with.
func (a *args) query() QueryKind { return QueryKind(a.choice("query", "exact", "guess", "prev_step")) }

// Bind takes the model's decomposition.
func (p *infinigen) Bind(m Model) error {
	basis, ok := Seen[*Decomposition](m.Observed, QueryBasis{})
	if !ok {
		return fmt.Errorf("policy: infinigen: the model's decomposition is missing: %w", ErrModel)
	}
	kv, err := m.one(p.Name())
	if err != nil {
		return err
	}
	p.basis, p.kv = basis, kv
	p.layers = make([]projection, len(m.Layers))
	if p.sample == 0 {
		p.energy, p.turned = make([][]float32, len(m.Layers)), make([][]float32, kv.Heads)
		for i := range m.Layers {
			if m.Acts(i) {
				p.energy[i] = make([]float32, m.Layers[i].Heads*kv.KeyDim)
			}
		}
	}
	return basis.Fits(m)
}

func (p *infinigen) Needs() Needs {
	return Needs{
		Queries: p.sample, Query: p.query, OfModel: []Observation{QueryBasis{}}, TokenGranularity: true, SinglesByHead: true,
		Sketch: Sketch{Kind: SketchProjected, Rank: p.rank(p.kv.KeyDim), Stored: p.stored},
	}
}

// Most implements [Reader].
func (p *infinigen) Most(l *Layer) (tokens, run int) {
	if l.Index < p.dense {
		return l.N, 1
	}
	return min(p.budget.Of(l, l.N)+1, l.N), 1
}

// rank is the number of columns kept of a key; before a model is known, 0.
func (p *infinigen) rank(dim int) int {
	return max(int(math.Round(p.partial*float64(dim))), min(1, dim))
}

// Watches implements [Watcher]: without a sample all queries count.
func (p *infinigen) Watches() bool { return p.sample == 0 }

// WatchPrompt adds up how much of each column the queries have: KeyDim multiplications for each of their numbers.
func (p *infinigen) WatchPrompt(l *Layer, first int, q []float32, rows int) {
	if p.energy == nil {
		return
	}
	l.each(l.KVHeads, func(_, g int) {
		if first == 0 {
			for h := g * l.Group(); h < (g+1)*l.Group(); h++ {
				clear(p.columns(l.Index, h))
			}
		}
		p.turned[g] = p.addEnergy(l, g, q, rows, p.turned[g])
	})
}

// columns is the energy of a query head's columns.
func (p *infinigen) columns(layer, head int) []float32 {
	d := p.kv.KeyDim
	return p.energy[layer][head*d:][:d]
}

// addEnergy adds Σ|q·c| over rows of queries [rows, Heads·KeyDim] to the energy of the columns c of the query heads of a KV head:
// row by row in order, so that how a prompt is cut changes no bit. It returns its scratch.
func (p *infinigen) addEnergy(l *Layer, g int, q []float32, rows int, scratch []float32) []float32 {
	const panel = 64 // columns that kernels.Gemm multiplies at once
	d, group := l.KeyDim, l.Group()
	basis := p.basis.Head(l.Index, g)
	scratch = sized(scratch, panel*(d+rows))
	packed, out := scratch[:panel*d], scratch[panel*d:]
	for at := 0; at < d; at += panel {
		wide := min(panel, d-at)
		clear(packed)
		for c := range wide {
			for i, x := range basis[(at+c)*d : (at+c+1)*d] {
				packed[i*panel+c] = x
			}
		}
		for h := g * group; h < (g+1)*group; h++ {
			kernels.Gemm(out, panel, q[h*d:], l.Heads*d, packed, d, rows, nil)
			energy := p.columns(l.Index, h)[at : at+wide]
			for r := range rows {
				for c, x := range out[r*panel:][:len(energy)] {
					energy[c] += math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
				}
			}
		}
	}
	return scratch
}

// Project chooses the columns of a KV head by the sum of the queries' magnitudes.
func (p *infinigen) Project(l *Layer, kvHead int, dst []float32) {
	d, rank := l.KeyDim, p.rank(l.KeyDim)
	basis, energy := p.basis.Head(l.Index, kvHead), p.newest(l, kvHead)
	for i, c := range p.pick.best(nil, energy, rank, 0) {
		copy(dst[i*d:(i+1)*d], basis[int(c)*d:int(c+1)*d])
	}
	if p.layers[l.Index] == nil {
		p.layers[l.Index] = make(projection, l.KVHeads)
	}
	p.layers[l.Index][kvHead] = append([]float32(nil), dst[:rank*d]...)
}

// newest is the energy of a KV head's columns: of all queries, or of the newest.
func (p *infinigen) newest(l *Layer, kvHead int) []float32 {
	d, group := l.KeyDim, l.Group()
	basis, energy := p.basis.Head(l.Index, kvHead), make([]float32, d)
	if p.energy != nil {
		for h := kvHead * group; h < (kvHead+1)*group; h++ {
			kernels.Add(energy, p.columns(l.Index, h))
		}
		return energy
	}
	for r := max(l.Rows-p.sample, 0); r < l.Rows; r++ {
		for h := kvHead * group; h < (kvHead+1)*group; h++ {
			q := l.Queries[(r*l.Heads+h)*d : (r*l.Heads+h+1)*d]
			for c := range d {
				energy[c] += float32(math.Abs(float64(kernels.Dot(basis[c*d:(c+1)*d], q))))
			}
		}
	}
	return energy
}

// Select counts the wanted tokens over all heads, then gives each head that many.
func (p *infinigen) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	target := p.budget.Of(l, l.N)
	if l.Index < p.dense || longestBefore(l) < target || p.layers[l.Index] == nil {
		read.All = true
		return
	}
	for len(p.heads) < l.KVHeads {
		p.heads = append(p.heads, speculation{})
	}
	l.each(l.KVHeads, func(_, g int) { p.speculate(l, g) })
	wanted := l.Heads // the newest token is always read, whether it is in the cache already or not
	for g := range l.KVHeads {
		wanted += p.heads[g].wanted
	}
	count := min(wanted/l.Heads, target)
	l.each(l.KVHeads, func(_, g int) {
		read.Heads[g] = p.heads[g].union(read.Heads[g], l, g, count-1, target-1)
		if n := l.older(g); n < l.Tokens(g) {
			read.Heads[g] = append(read.Heads[g], int32(n))
		}
	})
}

// Ranks implements [HeadScoring]: how far a token lies above the last that a head of the group wants.
func (p *infinigen) Ranks(kvHead int) []float32 {
	if kvHead >= len(p.heads) {
		return nil
	}
	return p.heads[kvHead].margin
}

// longestBefore is the most tokens before the newest position that a KV head has: the same for a layer that is asked about before
// the newest is cached.
func longestBefore(l *Layer) (n int) {
	for g := range l.KVHeads {
		n = max(n, l.older(g))
	}
	return n
}

// older is how many cached tokens of a KV head come before the newest position.
func (l *Layer) older(kvHead int) int {
	n := l.Tokens(kvHead)
	if n > 0 && int(l.Pos[kvHead][n-1]) == l.N-1 {
		n--
	}
	return n
}

// speculate scores the sketch for the heads of a group and counts, over those heads, the tokens before the newest that come
// within alpha of the best of them.
func (p *infinigen) speculate(l *Layer, g int) {
	rank, d, group, n, s := p.rank(l.KeyDim), l.KeyDim, l.Group(), l.Tokens(g), &p.heads[g]
	s.q, s.scores, s.wanted = sized(s.q, group*rank), sized(s.scores, group*n), 0
	queries := l.queries(g)
	for h := range group {
		for c := range rank {
			s.q[h*rank+c] = kernels.Dot(p.layers[l.Index][g][c*d:(c+1)*d], queries[h*d:(h+1)*d])
		}
	}
	l.Scores.Approx(g, s.q, group, s.scores)
	kernels.Scale(s.scores, l.scale())
	for h := range group {
		row := s.scores[h*n:][:l.older(g)]
		if len(row) == 0 {
			continue
		}
		least := kernels.Max(row) - float32(p.alpha)
		for _, x := range row {
			if x > least {
				s.wanted++
			}
		}
	}
}

// union appends the best count of the tokens before the newest of every head of a group, at most target of them.
func (s *speculation) union(dst []int32, l *Layer, g, count, target int) []int32 {
	n, width := l.older(g), l.Tokens(g)
	s.margin = s.margin[:0]
	if count <= 0 || n == 0 {
		return dst
	}
	s.margin = sized(s.margin, n)
	for h := range l.Group() {
		row := s.scores[h*width:][:n]
		last, _ := s.pick.cut(row, min(count, n))
		for i, x := range row {
			if above := x - last; h == 0 || above > s.margin[i] {
				s.margin[i] = above
			}
		}
	}
	many := 0
	for _, x := range s.margin {
		if x >= 0 {
			many++
		}
	}
	return s.pick.best(dst, s.margin, min(many, target), 0)
}
