package policy

// chunkKV keeps whole chunks of chunk_length neighbouring tokens, the same in every KV head (Liu et al. 2025, arXiv 2502.00299;
// kvpress's ChunkKVPress): a chunk's score is the mean over its tokens of the scores of the policy it wraps, summed over the heads. What
// is left behind the last whole chunk is a chunk too. A budget that is a share or a ratio is one of chunks, as in kvpress; of a number
// of tokens as many whole chunks stay as fit, at least one. Prompts shorter than a chunk are cut by the wrapped policy. No token stays
// for its place alone: a chunk outweighs the sinks and the newest token that it holds.
type chunkKV struct {
	scored
	inner  Scored
	length int
	chunks []float32
	picks  []int32
}

func init() {
	register(Info{
		Name:          "chunkkv",
		Summary:       "keeps whole chunks of neighbouring tokens by their mean score; wraps a scorer",
		Paper:         "ChunkKV: Semantic-Preserving KV Cache Compression for Efficient Long-Context LLM Inference, arXiv 2502.00299",
		Phase:         PhaseWrapper,
		MayDropNewest: true,
		MayDropSinks:  true,
		Wraps:         "snapkv",
		Params:        []Param{{Name: "chunk_length", Default: "20", Doc: "tokens of a chunk"}},
	}, func(a *args) Policy {
		return &chunkKV{scored: scored{base: a.base()}, inner: a.wrapped(), length: a.int("chunk_length", 1, maxTokens)}
	})
}

func (p *chunkKV) Bind(m Model) error { return bind(p.inner, m) }

func (p *chunkKV) Needs() Needs { return p.inner.Needs() }

func (p *chunkKV) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Target is what the wrapped policy's budget says, the same in every layer; of a wrapper inside its own.
func (p *chunkKV) Target(l *Layer) int {
	if b, ok := p.share(); ok {
		return b.Of(l, l.N)
	}
	return p.inner.Target(l)
}

// share is the wrapped policy's budget where it is a part of the text.
func (p *chunkKV) share() (Budget, bool) {
	if s, ok := p.inner.(interface{ given() Budget }); ok {
		b := s.given()
		return b, b.proportional()
	}
	return Budget{}, false
}

// Score is the wrapped policy's.
func (p *chunkKV) Score(l *Layer, target int, dst [][]float32) { p.inner.Score(l, target, dst) }

// Cut keeps the best chunks. Where heads hold different numbers of tokens, or all less than a chunk, the wrapped policy cuts.
func (p *chunkKV) Cut(l *Layer, scores [][]float32, target int, keep *Selection) {
	n := len(scores[0])
	for _, row := range scores {
		if len(row) != n || n < p.length {
			if target == p.Target(l) {
				target = p.inner.Target(l)
			}
			p.inner.Cut(l, scores, target, keep)
			return
		}
	}
	p.chunks = p.chunks[:0]
	for from := 0; from < n; from += p.length {
		to := min(from+p.length, n)
		var sum float64
		for _, row := range scores {
			for _, s := range row[from:to] {
				sum += float64(s)
			}
		}
		p.chunks = append(p.chunks, float32(sum/float64(to-from)))
	}
	p.picks = p.pick.best(p.picks[:0], p.chunks, p.count(l, n, target), 0)
	for g := range scores {
		for _, c := range p.picks {
			keep.Heads[g] = span(keep.Heads[g], int(c)*p.length, min((int(c)+1)*p.length, n))
		}
	}
}

// count is how many of the chunks of n tokens stay.
func (p *chunkKV) count(l *Layer, n, target int) int {
	if b, ok := p.share(); ok && n == l.N && target == b.Of(l, n) {
		return b.Tokens(len(p.chunks), l.KVBytes)
	}
	return max(target/p.length, 1) // target is another wrapper's, or a number of tokens
}
