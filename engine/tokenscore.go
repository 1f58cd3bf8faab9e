package engine

import (
	"terrace/kvmanager"
	"terrace/policy"
)

// tokenScan is one question to a layer's low-bit keys: a score a token over all KV heads, computed on all threads, a chunk of
// tokens each.
type tokenScan struct {
	question policy.TokenQuery
	asked    []int8 // [KVHeads][QuestionDim]
	scores   []float32
	of       *scorer
	sums     [][]int32 // [threads][2·ChunkTokens] scratch
	run      func(worker, chunk int)
}

// selectTokens asks a policy that ranks tokens by one integer sum each; false where it ranks them another way.
func (r *policyRun) selectTokens(st *layerState, l *policy.Layer) bool {
	ranking, ok := r.set.Selector.(policy.TokenScoring)
	if !ok || st.scorer.heads[0].low == nil || !ranking.Question(l, &r.tokens.question) {
		return false
	}
	t := &r.tokens
	if t.run == nil {
		t.run = t.chunk
		t.sums = make([][]int32, 1)
		if r.pool != nil {
			t.sums = make([][]int32, r.pool.Threads())
		}
		for i := range t.sums {
			t.sums[i] = make([]int32, 2*kvmanager.ChunkTokens)
		}
	}
	t.of, t.scores = st.scorer, sized(t.scores, l.Tokens(0))
	t.ask(l.KeyDim)
	r.spread(st.scorer.heads[0].low.Chunks(), t.run)
	ranking.Choose(l, t.scores, &r.picks)
	return true
}

// ask lays the query out as the sketches want it.
func (t *tokenScan) ask(dim int) {
	width := t.of.heads[0].low.QuestionDim()
	if need := len(t.of.heads) * width; cap(t.asked) < need {
		t.asked = make([]int8, need)
	}
	t.asked = t.asked[:len(t.of.heads)*width]
	clear(t.asked)
	for g := range t.of.heads {
		copy(t.asked[g*width:], t.question.Int8[g*dim:(g+1)*dim])
	}
}

// chunk scores one chunk of tokens and rounds the sums as a score block carries them.
func (t *tokenScan) chunk(worker, chunk int) {
	from := chunk * kvmanager.ChunkTokens
	dst := t.scores[from:min(from+kvmanager.ChunkTokens, len(t.scores))]
	sums, scratch := t.sums[worker][:len(dst)], t.sums[worker][kvmanager.ChunkTokens:]
	clear(sums)
	width := len(t.asked) / len(t.of.heads)
	for g := range t.of.heads {
		t.of.heads[g].low.AddProducts(sums, scratch, t.asked[g*width:(g+1)*width], chunk)
	}
	for i := range dst {
		dst[i] = float32(sums[i])
	}
	policy.RoundScores(dst, t.question.Shift)
}
