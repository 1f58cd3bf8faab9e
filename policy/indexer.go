package policy

import (
	"fmt"

	"terrace/internal/kernels"
)

// indexer reads what the model's own trained indexer chooses (DeepSeek V3.2, Qwen4-Exp), in prompts as while decoding: an index key a token
// (or block of tokens), cached behind the keys, and a few index queries a row give the score Σ_h w_h·relu(q_h·k); the best are read, and of
// blocks the tokens behind the last whole one. It is the attention that such a model was trained with; `full` reads everything instead.
//
// A row scores Heads·Dim numbers for each token or block before it.
type indexer struct {
	base
	budget Budget // none: the model's own number
	model  *Index
	scores []float32
	rank   IndexRank
}

// Index is a model's trained indexer, of the layers that keep numbers of one ([cacheshape.KV].Index).
type Index struct {
	Heads, Dim int // index queries a row, and their length
	TopK       int // tokens, or blocks, that a row reads
	Block      int // tokens that share an index key; 1 = each has its own
	// Finish makes the key of a block whose first token is at a position from the mean x [Dim] of its tokens' keys, in place; it is
	// asked where Block is above 1, by several goroutines at a time.
	Finish func(layer, position int, x []float32)
}

// RowSelector is a Selector that chooses for each row of a prompt as it does for steps, by a model's trained indexer.
type RowSelector interface {
	Selector
	// ReadsAll reports whether a row that sees n tokens reads all of them.
	ReadsAll(n int) bool
	// Choose appends the indices of the tokens that a row reads of the n that it sees, ascending: weights [Heads] are its own, scores
	// [Heads][stride] those of its index queries with each index key, which it changes.
	Choose(dst []int32, weights, scores []float32, stride, n int, rank *IndexRank) []int32
}

// IndexRank is the scratch of a choice; the zero value is ready.
type IndexRank struct {
	pick  picker
	units []int32
}

func init() {
	register(Info{
		Name:    "indexer",
		Summary: "reads what the model's own trained indexer chooses",
		Paper:   "DeepSeek-V3.2: Pushing the Frontier of Open Large Language Models, arXiv 2512.02556",
		Phase:   PhaseRead,
		Params: []Param{{Name: "budget", Aliases: []string{"top_k"},
			Doc: "what a row reads of the tokens that it sees: a fraction below 1, 20%, or tokens (1024, 1k); not given: the model's own number"}},
	}, func(a *args) Policy {
		p := &indexer{base: a.base()}
		if a.has("budget") {
			if p.budget = a.share("budget"); p.budget.kind == budgetBytes {
				a.fail("budget", "a share or a number of tokens", nil)
			}
		}
		return p
	})
}

// Bind takes the model's indexer.
func (p *indexer) Bind(m Model) error {
	if m.Index == nil {
		return fmt.Errorf("policy: indexer: the model has no trained indexer (DeepSeek V3.2 and Qwen4-Exp have one), any other policy will do: %w", ErrModel)
	}
	p.model = m.Index
	return nil
}

// Needs: before a model is known the sketch has no width.
func (p *indexer) Needs() Needs {
	n := Needs{TokenGranularity: true, SharedAcrossHeads: true, Sketch: Sketch{Kind: SketchIndex}}
	if p.model != nil {
		n.Sketch.Rank, n.Sketch.IndexBlock, n.Sketch.Finish = p.model.Dim, p.model.Block, p.model.Finish
	}
	return n
}

// best is how many tokens or blocks a row that sees n tokens reads.
func (p *indexer) best(n int) int {
	if p.budget.kind == budgetNone {
		return p.model.TopK
	}
	return max(1, p.budget.Tokens(n, 1)/p.model.Block)
}

// ReadsAll implements [RowSelector].
func (p *indexer) ReadsAll(n int) bool { return n/p.model.Block <= p.best(n) }

// Most implements [Reader].
func (p *indexer) Most(l *Layer) (tokens, run int) {
	b := p.model.Block
	return min(p.best(l.N)*b+b-1, l.N), b
}

// Choose implements [RowSelector].
func (p *indexer) Choose(dst []int32, weights, scores []float32, stride, n int, rank *IndexRank) []int32 {
	b := p.model.Block
	units := n / b
	sum := scores[:units]
	for h, w := range weights {
		row := scores[h*stride:][:units]
		for i, s := range row {
			row[i] = w * max(s, 0)
		}
		if h > 0 {
			kernels.Add(sum, row)
		}
	}
	if rank.units = rank.pick.best(rank.units[:0], sum, p.best(n), 0); b == 1 {
		return append(dst, rank.units...)
	}
	return span(blockTokens(dst, rank.units, b, n), units*b, n)
}

// Select chooses for the newest row.
func (p *indexer) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	n := l.Tokens(0)
	if p.ReadsAll(n) {
		read.All = true
		return
	}
	queries, units := p.model.Heads*p.model.Dim, n/p.model.Block
	p.scores = sized(p.scores, p.model.Heads*units)
	l.Scores.Approx(0, l.IndexQuery[:queries], p.model.Heads, p.scores)
	read.Heads[0] = p.Choose(read.Heads[0], l.IndexQuery[queries:], p.scores, units, n, &p.rank)
	for g := 1; g < l.KVHeads; g++ {
		read.Heads[g] = append(read.Heads[g], read.Heads[0]...)
	}
}
