package engine

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/policy"
)

// choose asks the selecting policy what this decode step reads of a layer, and restricts the attention to it.
func (r *policyRun) choose(s *Session, layer int, q []float32, seq *attention.Seq) {
	if r.set.Selector == nil || !r.global(layer) {
		return
	}
	st := &r.state[layer]
	if st.scorer == nil {
		st.scorer = newScorer(r.needs.Sketch, r.m.KVHeads, r.m.KeyDim)
	}
	l := r.observe(s, layer, 1)
	if len(st.queries) == 0 || r.needs.Query == policy.QueryExact {
		l.Queries, l.Rows = q, 1
	} else {
		l.Queries, l.Rows = st.guessed(r.needs.Query, q), 1
	}
	st.scorer.refresh(seq.Views, r.withPromptQueries(l, st), r.set.Projector)
	l.Scores = st.scorer
	r.picks.Reset(r.m.KVHeads)
	r.set.Selector.Select(l, &r.picks)
	st.share = append(st.share[:0], r.picks.Share...)
	if len(st.share) > 0 {
		r.addValues(st, seq.Views)
	}
	if r.needs.Query == policy.QueryPrevious {
		st.previous = append(st.previous[:0], q...)
	}
	if r.picks.All {
		r.readTokens += int64(r.m.KVHeads * s.seq.Tokens(layer, 0))
		return
	}
	st.selected = st.selected[:0]
	for g, idx := range r.picks.Heads {
		newest := int32(s.seq.Tokens(layer, g) - 1)
		if len(idx) == 0 || idx[len(idx)-1] != newest {
			r.picks.Heads[g] = append(idx, newest)
		}
		st.selected = append(st.selected, r.picks.Heads[g])
		r.readTokens += int64(len(r.picks.Heads[g]))
	}
	// Attention of all sequences of a pass comes after every choice: the picks must outlive the next one's.
	st.kept = copyPicks(st.kept, st.selected)
	seq.Select = st.kept
}

// withPromptQueries shows a projecting policy, at its first look, the newest queries of the prompt; the step's own query
// stays the last row.
func (r *policyRun) withPromptQueries(l *policy.Layer, st *layerState) *policy.Layer {
	if r.set.Projector == nil || st.rows == 0 {
		return l
	}
	p := *l
	p.Queries, p.Rows = st.queries, st.rows
	return &p
}

// guessed is the query that a policy scores with when it is not this step's own.
func (st *layerState) guessed(kind policy.QueryKind, exact []float32) []float32 {
	switch {
	case kind == policy.QueryGuess && len(st.guess) > 0:
		return st.guess
	case kind == policy.QueryPrevious && len(st.previous) > 0:
		return st.previous
	}
	return exact
}

func copyPicks(dst, src [][]int32) [][]int32 {
	for len(dst) < len(src) {
		dst = append(dst, nil)
	}
	for i := range src {
		dst[i] = append(dst[i][:0], src[i]...)
	}
	return dst[:len(src)]
}

// wantsGuess reports whether a decode pass must guess the next layer's query.
func (r *policyRun) wantsGuess() bool {
	return r != nil && r.set.Selector != nil && r.needs.Query == policy.QueryGuess
}

// guess stores the next layer's query, guessed from this layer's input by the backend (InfiniGen; algorithms.md 5.3).
func (e *Engine) guess(sessions []*Session, layer int, hidden *tensor.Dense) error {
	if layer+1 >= e.m.Layers || !slices.ContainsFunc(sessions, func(s *Session) bool { return s.policy.wantsGuess() }) {
		return nil
	}
	guesser, ok := e.backend.(model.QueryGuesser)
	if !ok {
		return fmt.Errorf("engine: backend %s cannot guess queries, which the policy needs (query=exact goes without): %w", e.backend.Name(), model.ErrUnsupported)
	}
	t, err := guesser.GuessQuery(&e.pass, layer+1, hidden)
	if err != nil {
		return err
	}
	q, width := floats(t), e.m.Heads*e.m.KeyDim
	for i, s := range sessions {
		if s.policy.wantsGuess() {
			st := &s.policy.state[layer+1]
			st.guess = append(st.guess[:0], q[i*width:(i+1)*width]...)
		}
	}
	return nil
}

// mixMean makes the attention output a·out + (1-a)·mean of all values, where the policy gave shares (SparQ).
func (r *policyRun) mixMean(layer int, out []float32) {
	st := &r.state[layer]
	if len(st.share) == 0 {
		return
	}
	dv := r.m.ValDim
	for h, a := range st.share {
		g := h / r.m.Group()
		n := float32(st.valueTokens[g])
		row, sum := out[h*dv:(h+1)*dv], st.valueSum[g*dv:(g+1)*dv]
		for d := range row {
			row[d] = a*row[d] + (1-a)*sum[d]/n
		}
	}
	st.share = st.share[:0]
}

// addValues brings the running sums of values in line with the cache.
func (r *policyRun) addValues(st *layerState, views []attention.View) {
	dv := r.m.ValDim
	if st.valueSum == nil {
		st.valueSum, st.valueTokens = make([]float32, r.m.KVHeads*dv), make([]int, r.m.KVHeads)
	}
	row := make([]float32, dv)
	for g := range views {
		v, n := &views[g], views[g].Tokens()
		if n < st.valueTokens[g] {
			st.valueTokens[g] = 0
			clear(st.valueSum[g*dv : (g+1)*dv])
		}
		for i := st.valueTokens[g]; i < n; i++ {
			kvpage.ReadV(v.Layout, v.Pages[i/v.Layout.Tokens].Data, i%v.Layout.Tokens, row)
			for d, x := range row {
				st.valueSum[g*dv+d] += x
			}
		}
		st.valueTokens[g] = n
	}
}
