package engine

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/attention/keyindex"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/policy"
)

// choose asks the selecting policy what this decode step reads of a layer, and restricts the attention to it.
func (r *policyRun) choose(s *Session, layer int, q []float32, seq *attention.Seq) error {
	if r.set.Selector == nil {
		return nil
	}
	st := &r.state[layer]
	l := r.observe(s, layer, 1)
	l.Queries, l.Rows = st.guessed(r.needs.QueryOf(layer), q), 1
	if err := r.refreshSketch(st, seq.Views, l); err != nil {
		return err
	}
	l.Scores = st.index
	if err := r.selects(s, st, seq.Views, l); err != nil {
		return err
	}
	st.share = append(st.share[:0], r.picks.Share...)
	if r.needs.Query == policy.QueryPrevious {
		st.previous = append(st.previous[:0], q...)
	}
	if r.picks.All {
		return nil
	}
	// Attention of all sequences of a pass comes after every choice: the picks must outlive the next one's.
	st.kept = copyPicks(st.kept, r.picks.Heads)
	for g, idx := range st.kept {
		newest := int32(s.seq.Tokens(layer, g) - 1)
		if len(idx) == 0 || idx[len(idx)-1] != newest {
			st.kept[g] = append(idx, newest)
		}
	}
	seq.Select = st.kept
	return nil
}

// selects asks the policy what it reads of a layer that l shows.
func (r *policyRun) selects(s *Session, st *layerState, views []attention.View, l *policy.Layer) error {
	r.picks.Reset(r.m.KVHeads)
	r.scored = nil
	r.below.Begin(l.Index)
	switch {
	case len(r.byHead) > 0:
		r.selectByHead(s, st, views, l)
	case r.selectTokens(st, l):
		r.scored = r.scores
	default:
		l.Spread, l.Workers = r.spreadTasks, r.pool.Threads()
		r.set.Selector.Select(l, &r.picks)
	}
	if err := r.below.End(l.Index); err != nil {
		return fmt.Errorf("engine: what policy %s scans of the keys: %w", r.set, err)
	}
	return nil
}

// sketchPrompt builds what a selecting policy scans at the end of the prompt, after what the prompt drops is gone.
func (r *policyRun) sketchPrompt(s *Session, layer, rows int) error {
	if r.set.Selector == nil {
		return nil
	}
	l := r.observe(s, layer, rows)
	return r.refreshSketch(&r.state[layer], r.reader.views, l)
}

// sketchTokens is how many tokens are added to sketches before what is full of them is stored below.
const sketchTokens = 1024

// refreshSketch brings the sketches, and the sums of values, in line with the cache, a task a KV head.
func (r *policyRun) refreshSketch(st *layerState, views []attention.View, l *policy.Layer) error {
	if st.index == nil {
		st.index = r.newScorer(l.Index, views)
	}
	r.task = headTask{st: st, views: views, layer: l, most: math.MaxInt}
	if r.below != nil {
		r.task.most = st.index.Head(0).Tokens() + sketchTokens
	}
	if r.set.Projector != nil && st.index.Head(0).Tokens() == 0 {
		for g := range views { // the policy's Project is not for several threads
			r.refreshHead(0, g)
		}
	} else {
		r.pool.Run(len(views), r.refreshHead)
	}
	if r.below == nil {
		return nil
	}
	if err := r.below.Flush(l.Index); err != nil {
		return fmt.Errorf("engine: what policy %s scans of the keys: %w", r.set, err)
	}
	for g := range r.m.KVHeads {
		if st.index.Head(g).Tokens() < len(l.Pos[g]) {
			return r.refreshSketch(st, views, l)
		}
	}
	return nil
}

// newScorer is an empty one for a layer.
func (r *policyRun) newScorer(layer int, views []attention.View) *keyindex.Index {
	sc := keyindex.New(r.needs.Sketch, r.m.KVHeads, r.m.KeyDim)
	for g := range r.m.KVHeads {
		sc.Head(g).SetMoving(r.tiered)
		if r.below != nil {
			sc.Head(g).KeepBelow(r.below.Stream(layer, g), views[g].Layout.K)
		}
	}
	return sc
}

// stores reports whether what the policy scans of the keys goes to the lower tier as well: where one text's tokens only
// become more.
func (r *policyRun) stores(keys kvpage.Elem) bool {
	return r.tiered && r.set.Selector != nil && r.needs.Sketch.Stored && r.set.Dropper == nil && r.set.Pruner == nil &&
		(r.needs.Sketch.Kind != policy.SketchExact || !keys.Quantised())
}

// headTask is what the prebuilt functions below work on.
type headTask struct {
	st    *layerState
	views []attention.View
	layer *policy.Layer
	most  int // tokens that a sketch may have after a task
}

func (r *policyRun) refreshOne(_, g int) {
	t := &r.task
	t.st.index.Head(g).Refresh(&t.views[g], t.layer.Pos[g], t.most, t.layer, g, r.set.Projector)
	if r.needs.ValueMean {
		t.st.addValues(g, &t.views[g], r.m.ValDim)
	}
}

// headChoice is an instance of the policy that decides for one KV head, and what it is shown.
type headChoice struct {
	selector policy.Selector
	layer    policy.Layer
	reader   kvReader
	picks    policy.Picks
}

// selectByHead asks a separate instance for each KV head, at the same time (policy.HeadSelector).
func (r *policyRun) selectByHead(s *Session, st *layerState, views []attention.View, l *policy.Layer) {
	width := r.m.Group() * r.m.KeyDim
	for g := range r.byHead {
		c := &r.byHead[g]
		c.layer = *l
		c.reader.views = views[g : g+1]
		c.layer.KV, c.layer.Scores = &c.reader, st.index.Head(g)
		c.layer.Heads, c.layer.KVHeads, c.layer.Pos = r.m.Group(), 1, l.Pos[g:g+1]
		c.layer.Queries, c.layer.Rows = l.Queries[g*width:(g+1)*width], 1
		c.picks.Reset(1)
	}
	if tasks := r.scanTasks(); tasks > 0 {
		r.pool.Run(tasks, r.scanHead)
	} else {
		r.pool.Run(len(r.byHead), r.selectHead)
	}
	r.picks.All = true
	for g := range r.byHead {
		r.picks.All = r.picks.All && r.byHead[g].picks.All
	}
	for g := range r.byHead {
		p := &r.byHead[g].picks
		r.picks.Share = append(r.picks.Share, p.Share...)
		if p.All && !r.picks.All {
			for i := range s.seq.Tokens(l.Index, g) {
				r.picks.Heads[g] = append(r.picks.Heads[g], int32(i))
			}
			continue
		}
		r.picks.Heads[g] = append(r.picks.Heads[g], p.Heads[0]...)
	}
}

func (r *policyRun) selectOne(_, g int) {
	c := &r.byHead[g]
	c.selector.Select(&c.layer, &c.picks)
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

// wantsGuess reports whether a decode pass must guess a layer's query.
func (r *policyRun) wantsGuess(layer int) bool {
	return r != nil && r.set.Selector != nil && r.needs.QueryOf(layer) == policy.QueryGuess
}

// guess stores the next layer's query, guessed from this layer's input by the backend (InfiniGen; algorithms.md 5.3).
func (e *Engine) guess(sessions []*Session, layer int, hidden *tensor.Dense) error {
	if layer+1 >= e.m.Layers || !slices.ContainsFunc(sessions, func(s *Session) bool { return s.policy.wantsGuess(layer + 1) }) {
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
	if e.o.Rotate {
		rotate(q, e.m.KeyDim)
	}
	for i, s := range sessions {
		if s.policy.wantsGuess(layer + 1) {
			st := &s.policy.state[layer+1]
			st.guess = append(st.guess[:0], q[i*width:(i+1)*width]...)
		}
	}
	return nil
}

// mixMean makes the attention output, numbers from to to-1 of attended, a·out + (1-a)·mean of all values, where the policy gave shares (SparQ).
func (r *policyRun) mixMean(layer int, attended *tensor.Dense, from, to int) {
	st := &r.state[layer]
	if len(st.share) == 0 {
		return
	}
	out := model.WritableFloat32s(attended)[from:to]
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

// addValues brings a head's running sum of values in line with the cache.
func (st *layerState) addValues(g int, v *attention.View, dv int) {
	sum, n := st.valueSum[g*dv:(g+1)*dv], v.Tokens()
	if n < st.valueTokens[g] {
		st.valueTokens[g] = 0
		clear(sum)
	}
	x := &st.values[g]
	for i := st.valueTokens[g]; i < n; i++ {
		x.row = sized(x.row, dv)
		row := x.row
		x.reader.Values(v, i, i+1, row)
		for d, x := range row {
			sum[d] += x
		}
	}
	st.valueTokens[g] = n
}

// selectTokens asks a policy that ranks tokens by one integer sum each; false where it ranks them another way.
func (r *policyRun) selectTokens(st *layerState, l *policy.Layer) bool {
	ranking, ok := r.set.Selector.(policy.TokenScoring)
	if !ok || !st.index.CanScan() || !ranking.Question(l, &r.question) {
		return false
	}
	r.scores = sized(r.scores, l.Tokens(0))
	r.scan.Score(st.index, &r.question, l.KeyDim, r.scores, r.pool)
	ranking.Choose(l, r.scores, &r.picks)
	return true
}

// scanTask is one chunk of a KV head's index; the head's last chunk decides.
type scanTask struct{ head, chunk int }

// scanTasks lists the chunks to scan before the heads decide; none where a head does not ask for a scan.
func (r *policyRun) scanTasks() int {
	r.scans = r.scans[:0]
	for g := range r.byHead {
		c := &r.byHead[g]
		scanner, ok := c.selector.(policy.Scanner)
		if !ok || !scanner.Scans(&c.layer) {
			return 0
		}
		for chunk := range r.task.st.index.Head(g).Begin(c.layer.Queries, c.layer.Heads) {
			r.scans = append(r.scans, scanTask{g, chunk})
		}
	}
	return len(r.scans)
}

func (r *policyRun) scanOne(worker, i int) {
	t := r.scans[i]
	if r.task.st.index.Head(t.head).Chunk(t.chunk) {
		r.selectOne(worker, t.head)
	}
}

// sized returns buf with length n, its memory reused where it is large enough; the content is arbitrary.
func sized(buf []float32, n int) []float32 {
	if cap(buf) < n {
		buf = make([]float32, n+n/4)
	}
	return buf[:n]
}
