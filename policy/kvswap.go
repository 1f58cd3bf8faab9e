package policy

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/mat"

	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
)

// kvswap keeps all KV on a disk in groups of a few tokens, all KV heads together, and in memory a low-rank copy of the keys: a
// token's keys of all heads side by side, times the first right singular vectors of the prompt's (KVSwap, arXiv 2511.11907). A
// step scores the copy with a query that is guessed a layer ahead, averaged over all heads, and reads the groups whose best
// token scores highest, so that storage sees requests `group` times as large. Tokens that do not fill a group yet are in a
// rolling buffer: always read, on top of the budget.
//
// The copy takes rank/(2·KVHeads·KeyDim) of the KV bytes. The singular vectors are those of this prompt's keys, not centred, one
// symmetric eigenproblem of KVHeads·KeyDim a layer; or, with calibrate=model, of the keys of a sample text, once a model.
type kvswap struct {
	base
	budget Budget
	group  int
	rank   Budget // of KeyDim, or columns
	query  QueryKind
	from   int     // first layer that is guessed
	reuse  *Budget // tokens that stay in fast memory; nil = the budget
	dense  int
	sample bool // the singular vectors are those of the model's sample text

	basis    *Decomposition // of the model's keys, where sample
	kv       cacheshape.KV  // of the layers that it acts on
	matrices [][]float32    // by layer: [rank, KVHeads·KeyDim]

	swapScratch
}

// swapScratch is what a step's choice works in.
type swapScratch struct {
	u, mean   []float32
	scores    []float32
	best      []float32
	picks     []int32
	pick      picker
	keys, row []float32
}

func init() {
	register(Info{
		Name:    "kvswap",
		Summary: "scores a low-rank copy of all heads' keys with a guessed query, reads groups of tokens from a disk tier",
		Paper:   "KVSwap: Disk-aware KV Cache Offloading for Long-Context On-device Inference, arXiv 2511.11907",
		Phase:   PhaseRead,
		Params: append(budgetParams("400"),
			Param{Name: "group", Default: "4", Doc: "tokens that are read together; 8 for slower storage"},
			Param{Name: "rank", Default: "100%", Doc: "columns of the copy: a share of a key's length, or a number up to that of all heads"},
			Param{Name: "calibrate", Default: "prompt", Doc: "whose keys the columns are made for: this prompt's, or model: those of a sample text, once a model (nothing to wait for after the prompt)"},
			Param{Name: "query", Default: "guess", Doc: "guess (from the previous layer's input), exact, or prev_step"},
			Param{Name: "guess_from", Default: "2", Doc: "where query=guess: so many of the first layers are scored with their own query"},
			Param{Name: "reuse", Doc: "tokens of the last steps' groups that stay in fast memory on tiers, a number or a share; not given: the budget (changes bytes, no result)"},
			Param{Name: "dense_layers", Aliases: []string{"skip_layers"}, Default: "0", Doc: "first layers that read everything"}),
	}, func(a *args) Policy {
		p := &kvswap{base: a.base(), budget: a.budget(), group: a.int("group", 1, 4096), rank: a.share("rank"), query: a.query(),
			sample: a.choice("calibrate", "prompt", "model") == 1, dense: a.int("dense_layers", 0, maxTokens)}
		if from := a.int("guess_from", 0, maxTokens); p.query == QueryGuess {
			p.from = from
		}
		if a.has("reuse") {
			reuse := a.share("reuse")
			p.reuse = &reuse
		}
		if p.rank.kind == budgetShare && p.rank.share.Fraction == 0 && p.rank.share.Count < 1 {
			a.fail("rank", "at least one column", nil)
		}
		return p
	})
}

// Bind sizes the copy.
func (p *kvswap) Bind(m Model) error {
	kv, err := m.one(p.Name())
	if err != nil {
		return err
	}
	p.kv, p.matrices = kv, make([][]float32, len(m.Layers))
	if p.rank.share.Count > kv.Heads*kv.KeyDim {
		return fmt.Errorf("policy: kvswap: rank=%s: want at most the %d numbers of the model's %d KV heads: %w", p.rank, kv.Heads*kv.KeyDim, kv.Heads, ErrModel)
	}
	if !p.sample {
		return nil
	}
	var ok bool
	if p.basis, ok = Seen[*Decomposition](m.Observed, KeyBasis{}); !ok {
		return fmt.Errorf("policy: kvswap: calibrate=model: the decomposition of the model's keys is missing: %w", ErrModel)
	}
	return p.basis.fits(NewKeyBasis(m))
}

// columns is the rank; before a model is known, 0.
func (p *kvswap) columns() int {
	if p.kv.KeyDim == 0 {
		return 0
	}
	if p.rank.share.Fraction > 0 {
		return p.rank.Tokens(p.kv.KeyDim, 1)
	}
	return p.rank.share.Count
}

func (p *kvswap) Needs() Needs {
	n := Needs{Query: p.query, QueryFrom: p.from, TokenGranularity: true, SharedAcrossHeads: true, Sketch: Sketch{Kind: SketchJoint, Rank: p.columns()}}
	if p.sample {
		n.OfModel = []Observation{KeyBasis{}}
	}
	return n
}

// BufferTokens implements [Buffered].
func (p *kvswap) BufferTokens(l *Layer) int {
	if p.reuse != nil {
		return p.reuse.Of(l, l.N)
	}
	return p.budget.Of(l, l.N)
}

// GroupTokens implements [Grouped].
func (p *kvswap) GroupTokens() int { return p.group }

func (p *kvswap) denseLayers() int { return p.dense }

// Project gives the first right singular vectors of the cached keys of all KV heads, or of the sample's: dst [rank, KVHeads·KeyDim].
func (p *kvswap) Project(l *Layer, _ int, dst []float32) {
	if p.sample {
		copy(dst, p.basis.Head(l.Index, 0))
	} else {
		p.decompose(l, dst)
	}
	p.matrices[l.Index] = slices.Clone(dst)
}

// decompose finds the singular vectors of this text's keys.
func (p *kvswap) decompose(l *Layer, dst []float32) {
	width, n := l.KVHeads*l.KeyDim, l.Tokens(0)
	for g := range l.KVHeads {
		n = min(n, l.Tokens(g))
	}
	gram := make([]float64, width*width)
	block := make([]float32, width*width)
	p.keys, p.row = sized(p.keys, chunkRows*l.KeyDim), sized(p.row, chunkRows*width)
	for from := 0; from < n; from += chunkRows {
		m := min(chunkRows, n-from)
		for g := range l.KVHeads {
			l.KV.Keys(g, from, from+m, p.keys[:m*l.KeyDim])
			for i := range m {
				copy(p.row[i*width+g*l.KeyDim:][:l.KeyDim], p.keys[i*l.KeyDim:])
			}
		}
		clear(block)
		for i := range m { // float32 sums of a few rows, added up in float64
			row := p.row[i*width : (i+1)*width]
			for r, x := range row {
				kernels.Axpy(block[r*width:r*width+r+1], x, row[:r+1])
			}
		}
		for i, x := range block {
			gram[i] += float64(x)
		}
	}
	for r := range width {
		for c := range r {
			gram[c*width+r] = gram[r*width+c]
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(mat.NewSymDense(width, gram), true) { // only numbers that are not finite have none
		clear(dst)
	} else {
		var vectors mat.Dense
		eigen.VectorsTo(&vectors)
		for c := range len(dst) / width {
			for i := range width {
				dst[c*width+i] = float32(vectors.At(i, width-1-c))
			}
		}
	}
}

// Select reads the groups with the best tokens, and the rolling buffer.
func (p *kvswap) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	old := l.older(0)
	groups, many := old/p.group, max(1, p.budget.Of(l, l.N)/p.group)
	if l.Index < p.dense || many >= groups || p.matrices[l.Index] == nil {
		read.All = true
		return
	}
	p.rankGroups(l, groups)
	p.picks = p.pick.best(p.picks[:0], p.best, many, 0)
	for g := range read.Heads {
		heads := blockTokens(read.Heads[g], p.picks, p.group, groups*p.group)
		read.Heads[g] = span(heads, groups*p.group, l.Tokens(g))
	}
}

// rankGroups fills best with the largest score of each group.
func (p *kvswap) rankGroups(l *Layer, groups int) {
	d, width, rank := l.KeyDim, l.KVHeads*l.KeyDim, p.columns()
	p.mean, p.u = sized(p.mean, width), sized(p.u, rank)
	clear(p.mean)
	for h := range l.Heads {
		kernels.Axpy(p.mean[h/l.Group()*d:][:d], 1/float32(l.Heads), l.Query(h)) // over the group, and then over the KV heads
	}
	for r := range p.u {
		p.u[r] = kernels.Dot(p.matrices[l.Index][r*width:(r+1)*width], p.mean)
	}
	p.scores = sized(p.scores, l.Tokens(0))
	l.Scores.Approx(0, p.u, 1, p.scores)
	p.best = p.best[:0]
	for j := range groups {
		p.best = append(p.best, slices.Max(p.scores[j*p.group:(j+1)*p.group]))
	}
}

// Most implements [Reader].
func (p *kvswap) Most(l *Layer) (tokens, run int) {
	if l.Index < p.dense {
		return l.N, p.group
	}
	return min((max(1, p.budget.Of(l, l.N)/p.group)+1)*p.group, l.N), p.group
}

// Buffered is a Selector that says how many tokens stay in fast memory between steps where KV lies on tiers: those that were read
// last. It changes which bytes move, never what is read.
type Buffered interface {
	Selector
	// BufferTokens is how many tokens of a KV head stay in a layer that has passed l.N tokens; negative: as many as fit.
	BufferTokens(l *Layer) int
}

// Grouped is a Selector that reads groups of tokens, all KV heads together: group j holds the indices from j·GroupTokens() on.
type Grouped interface {
	Selector
	GroupTokens() int
}
