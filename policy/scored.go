package policy

// Scored is a policy that gives every cached token a score and keeps the best; wrappers change how many stay, how they are
// shared by the heads, and when.
type Scored interface {
	PromptKeeper
	// Score fills dst [KVHeads][tokens]: higher is kept, where target tokens per KV head stay. Tokens that must stay get a
	// score above the others.
	Score(l *Layer, target int, dst [][]float32)
	// Target is the number of tokens that stays per KV head.
	Target(l *Layer) int
	// Cut turns scores into picks: target tokens per KV head on average over the layer.
	Cut(l *Layer, scores [][]float32, target int, keep *Selection)
}

// scored is embedded by policies that are Scored: a budget, and the best of every KV head.
type scored struct {
	base
	ranked
	budget Budget
	scores [][]float32
	kept   Selection
	pick   picker
}

// given is the budget as it was given, none for wrappers.
func (s *scored) given() Budget { return s.budget }

// Target is the budget of the prompt so far.
func (s *scored) Target(l *Layer) int { return s.budget.Of(l, l.N) }

// Cut keeps the best target tokens of each KV head.
func (s *scored) Cut(l *Layer, scores [][]float32, target int, keep *Selection) {
	for g, row := range scores {
		keep.Heads[g] = s.pick.best(keep.Heads[g], row, target, 0)
	}
}

// keepBest is KeepPrompt of a scored policy p, whose embedded part s is.
func (s *scored) keepBest(p Scored, l *Layer, keep *Selection) {
	keep.Reset(l.KVHeads)
	target := p.Target(l)
	s.forget(l.Index)
	if fits(l, target) {
		keep.All = true
		return
	}
	s.scores = heads(s.scores, l)
	p.Score(l, target, s.scores)
	p.Cut(l, s.scores, target, keep)
	if s.noting {
		s.noteRanks(p, l, keep)
	}
}

// fits reports whether no KV head of the layer holds more than target tokens.
func fits(l *Layer, target int) bool {
	for g := range l.KVHeads {
		if l.Tokens(g) > target {
			return false
		}
	}
	return true
}

// chunkRows is how many rows of keys or values are read at a time.
const chunkRows = 64

// eachKey calls fn with every key of a KV head in cache order; buf is scratch.
func eachKey(l *Layer, kvHead int, buf *[]float32, fn func(i int, key []float32)) {
	eachRow(l.Tokens(kvHead), l.KeyDim, buf, func(from, to int, dst []float32) { l.KV.Keys(kvHead, from, to, dst) }, fn)
}

// eachValue calls fn with every value of a KV head in cache order; buf is scratch.
func eachValue(l *Layer, kvHead int, buf *[]float32, fn func(i int, value []float32)) {
	eachRow(l.Tokens(kvHead), l.ValueDim, buf, func(from, to int, dst []float32) { l.KV.Values(kvHead, from, to, dst) }, fn)
}

func eachRow(n, dim int, buf *[]float32, read func(from, to int, dst []float32), fn func(i int, row []float32)) {
	*buf = sized(*buf, chunkRows*dim)
	for from := 0; from < n; from += chunkRows {
		to := min(from+chunkRows, n)
		read(from, to, (*buf)[:(to-from)*dim])
		for i := from; i < to; i++ {
			fn(i, (*buf)[(i-from)*dim:(i-from+1)*dim])
		}
	}
}
