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
	dst      []float32
	shift    int
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
	t.scores = sized(t.scores, l.Tokens(0))
	r.scanTokens(st, &t.question, l.KeyDim, t.scores)
	ranking.Choose(l, t.scores, &r.picks)
	return true
}

// scanTokens scores as many of a layer's low-bit keys as dst has room for, as a score block carries them.
func (r *policyRun) scanTokens(st *layerState, q *policy.TokenQuery, dim int, dst []float32) {
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
	t.of, t.dst, t.shift = st.scorer, dst, q.Shift
	t.ask(q.Int8, dim)
	r.spread((len(dst)+kvmanager.ChunkTokens-1)/kvmanager.ChunkTokens, t.run)
}

// ask lays the query out as the sketches want it.
func (t *tokenScan) ask(query []int8, dim int) {
	width := t.of.heads[0].low.QuestionDim()
	if need := len(t.of.heads) * width; cap(t.asked) < need {
		t.asked = make([]int8, need)
	}
	t.asked = t.asked[:len(t.of.heads)*width]
	clear(t.asked)
	for g := range t.of.heads {
		copy(t.asked[g*width:], query[g*dim:(g+1)*dim])
	}
}

// chunk scores one chunk of tokens and rounds the sums as a score block carries them.
func (t *tokenScan) chunk(worker, chunk int) {
	from := chunk * kvmanager.ChunkTokens
	dst := t.dst[from:min(from+kvmanager.ChunkTokens, len(t.dst))]
	sums, scratch := t.sums[worker][:len(dst)], t.sums[worker][kvmanager.ChunkTokens:]
	clear(sums)
	width := len(t.asked) / len(t.of.heads)
	for g := range t.of.heads {
		if chunk >= t.of.heads[g].low.Chunks() {
			break // a token that is hot, and whose key is not there yet
		}
		t.of.heads[g].low.AddProducts(sums, scratch, t.asked[g*width:(g+1)*width], chunk)
	}
	for i := range dst {
		dst[i] = float32(sums[i])
	}
	policy.RoundScores(dst, t.shift)
}
