package retrieval

import (
	"fmt"
	"math"
	"time"

	"terrace/attention"
	"terrace/attention/keyindex"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/policy"
)

// selector asks a selecting policy what a decode step reads of a layer. It keeps the index that the policy scans, the queries
// that it scores with when they are not the step's own, and what was selected.
type selector struct {
	t        *Sequence
	layers   []selected
	picks    policy.Selection
	ranks    [][]float32               // [1, or KVHeads] [tokens] what picks were made from, where that is one score a token; empty = it is not
	below    *kvmanager.StoredSketches // full tiles of the index on the backing store; nil = all is in host memory
	heads    headSelector              // of a policy that decides each KV head by itself
	indexing indexing
	tokens   tokenRanking
	means    valueMeans
	task     refreshTask
	query    []float32     // the step's index query in the layer in progress
	charged  int64         // of the index in host memory
	scanned  int64         // bytes that the policy read of clusters, by itself
	huge     *kernels.Huge // of all layers' indexes; nil on tiers, where the budget counts every byte
}

// selected is what is known of one layer.
type selected struct {
	index    *keyindex.Index
	guess    []float32 // this layer's query as guessed from the layer before
	previous []float32 // this layer's query one step ago
	newest   []float32 // that of the step in progress, which is the previous one once the step has ended
	kept     [][]int32 // what was selected, by KV head
	all      bool      // everything was
	beside   policy.Estimates
	norm     *attention.Norm // of the attention that beside is weighed against
	share    []float32       // [Heads] part of the attention that it holds, where the policy says so
}

// tokenRanking is the scratch of a policy that ranks tokens by one integer sum each.
type tokenRanking struct {
	scan   keyindex.TokenScan
	query  policy.TokenQuery
	scores []float32
}

// refreshTask brings a layer's index in line with the cache, a KV head at a time.
type refreshTask struct {
	s     *selector
	head  func(worker, g int) // one, built once, so that a step allocates nothing
	index *keyindex.Index
	views []attention.View
	layer *policy.Layer
	most  int // tokens that the index may have afterwards
}

func newSelector(t *Sequence, spec *policy.Spec) (*selector, error) {
	s := &selector{t: t, layers: make([]selected, len(t.f.o.Shape.Layers))}
	s.task.s, s.task.head = s, s.task.one
	if t.obs.needs.ValueMean {
		s.means.init(&t.f.o.Shape)
	}
	s.indexing.init(s)
	if err := s.heads.init(s, spec); err != nil {
		return nil, err
	}
	if !t.f.Tiered() {
		s.huge = kernels.NewHuge()
	}
	if s.storable() {
		s.below = t.f.o.KV.NewStoredSketches()
	}
	return s, nil
}

// storable reports whether what the policy scans goes to the backing store as well: where one text's tokens only become more.
func (s *selector) storable() bool {
	n, set := &s.t.obs.needs, s.t.set
	return s.t.f.Tiered() && n.Sketch.Stored && set.Dropper == nil && set.Pruner == nil &&
		(n.Sketch.Kind != policy.SketchExact && n.Sketch.Kind != policy.SketchDims || !s.t.f.o.KV.Format().K.Quantised())
}

// free gives back what is kept on the backing store; nil has nothing.
func (s *selector) free() error {
	if s == nil {
		return nil
	}
	err := s.below.Free()
	s.below = nil
	s.huge.Free()
	s.huge = nil
	return err
}

// indexBytes is the memory of all layers' indexes.
func (s *selector) indexBytes() (n int64) {
	if s == nil {
		return 0
	}
	for i := range s.layers {
		if x := s.layers[i].index; x != nil {
			n += x.Bytes()
		}
	}
	return n
}

// scannedBytes is what was read to score tokens with, by the index and by the policy.
func scannedBytes(s *selector) int64 {
	if s == nil {
		return 0
	}
	n := s.scanned
	for i := range s.layers {
		if x := s.layers[i].index; x != nil {
			n += x.Scanned()
		}
	}
	return n
}

// charge counts the index against the budget.
func (s *selector) charge() error {
	if s == nil {
		return nil
	}
	n := s.indexBytes()
	if n <= s.charged {
		return nil
	}
	if err := s.t.f.o.KV.Charge(n - s.charged); err != nil {
		return s.indexError(err)
	}
	s.charged = n
	return nil
}

// refund takes the charge back.
func (s *selector) refund() {
	if s != nil {
		s.t.f.o.KV.Refund(s.charged)
		s.charged = 0
	}
}

// choose asks the policy what this decode step reads of a layer whose pages are in host memory, and restricts the attention
// to it. q is the step's query.
func (s *selector) choose(layer int, q []float32, seq *attention.Seq) error {
	l, needs := &s.layers[layer], &s.t.obs.needs
	shown := s.t.Layer(layer, 1)
	shown.Queries, shown.Rows = l.query(needs.QueryOf(layer), q), 1
	shown.IndexQuery = s.query
	if err := s.refresh(l, seq.Views, shown); err != nil {
		return err
	}
	shown.Scores = l.index
	if err := s.ask(l, seq.Views, shown); err != nil {
		return err
	}
	s.remember(l, q)
	if l.all = s.picks.All; l.all {
		return nil
	}
	// Attention of all texts of a pass comes after every choice: the picks must outlive the next one's.
	l.kept = copyPicks(l.kept, s.picks.Heads)
	for g, idx := range l.kept {
		newest := int32(s.t.seq.Tokens(layer, g) - 1)
		if s.indexing.rows == nil && (len(idx) == 0 || idx[len(idx)-1] != newest) {
			l.kept[g] = append(idx, newest)
		}
	}
	seq.Select = l.kept
	return nil
}

// again restricts the attention of a layer that reads another's keys and values to what was chosen there.
func (s *selector) again(owner int, seq *attention.Seq) {
	if l := &s.layers[owner]; !l.all {
		seq.Select = l.kept
	}
}

// remember keeps a step's query for policies that score with the last step's.
func (s *selector) remember(l *selected, q []float32) {
	if s.t.obs.needs.Query == policy.QueryPrevious {
		l.newest = append(l.newest[:0], q...)
	}
}

// stepped ends a step: its queries are the previous ones.
func (s *selector) stepped() {
	if s == nil || s.t.obs.needs.Query != policy.QueryPrevious {
		return
	}
	for i := range s.layers {
		if l := &s.layers[i]; len(l.newest) > 0 {
			l.previous, l.newest = l.newest, l.previous[:0]
		}
	}
}

// drop forgets what is scanned, and by which queries: it is built again at the end of a prompt. nil has nothing.
func (s *selector) drop() {
	if s == nil {
		return
	}
	for i := range s.layers {
		l := &s.layers[i]
		l.index, l.previous, l.newest = nil, nil, nil
	}
}

// ask asks the policy what it reads of a layer that it is shown.
func (s *selector) ask(l *selected, views []attention.View, shown *policy.Layer) error {
	s.picks.Reset(shown.KVHeads)
	s.ranks = s.ranks[:0]
	s.below.Begin(shown.Index)
	defer s.t.decided(time.Now())
	switch {
	case len(s.heads.each) > 0:
		s.heads.ask(l, views, shown)
	case rankTokens(s, l, shown):
		s.ranks = append(s.ranks, s.tokens.scores)
	default:
		shown.Spread, shown.Workers = s.t.pool().Run, s.t.pool().Threads()
		s.t.set.Selector.Select(shown, &s.picks)
		if ranked, ok := s.t.set.Selector.(policy.HeadScoring); ok {
			for g := range shown.KVHeads {
				s.ranks = append(s.ranks, ranked.Ranks(g))
			}
		}
	}
	s.decided(l, shown)
	if err := s.below.End(shown.Index); err != nil {
		return s.indexError(err)
	}
	return nil
}

// decided keeps what a policy has said of a layer beside what is read.
func (s *selector) decided(l *selected, shown *policy.Layer) {
	s.scanned += s.picks.Scanned
	s.t.f.scanned(shown.Index, shown.Tokens(0))
	l.share = append(l.share[:0], s.picks.Share...)
	l.beside.LogSum = append(l.beside.LogSum[:0], s.picks.Estimates.LogSum...)
	l.beside.Values = append(l.beside.Values[:0], s.picks.Estimates.Values...)
}

// wantNorm has attention note what a layer's estimates are weighed by.
func (s *selector) wantNorm(layer int, seq *attention.Seq) {
	if s == nil || len(s.layers[layer].beside.LogSum) == 0 {
		return
	}
	l := &s.layers[layer]
	if l.norm == nil {
		l.norm = attention.NewNorm(1, len(l.beside.LogSum))
	}
	seq.Norm = l.norm
}

// addUnread makes a step's attention output [Heads·ValueDim] that of what was read and of what stands for the rest.
func addUnread(s *selector, layer int, out []float32) {
	l := &s.layers[layer]
	if len(l.share) > 0 {
		s.means.add(layer, l.share, out)
		l.share = l.share[:0]
	}
	dim := s.t.f.o.Shape.kv(layer).ValueDim
	for h, estimated := range l.beside.LogSum {
		part := float32(1 / (1 + math.Exp(float64(estimated)-float64(l.norm.LogSum[h])))) // of what was read
		row := out[h*dim : (h+1)*dim]
		for d, x := range l.beside.Values[h*dim : (h+1)*dim] {
			row[d] = part*row[d] + (1-part)*x
		}
	}
	l.beside.LogSum = l.beside.LogSum[:0]
}

func (s *selector) indexError(err error) error {
	return fmt.Errorf("retrieval: what policy %s scans of the keys: %w", s.t.set, err)
}

// rankTokens asks a policy that ranks tokens by one integer sum each; false where it ranks them another way.
func rankTokens(s *selector, l *selected, shown *policy.Layer) bool {
	if !s.scans(l, shown) {
		return false
	}
	s.tokens.scan.Score(l.index, &s.tokens.query, shown.KeyDim, s.tokens.scores, s.t.pool())
	s.chooseTokens(shown)
	return true
}

// scans readies the question of a policy that ranks tokens by one integer sum each.
func (s *selector) scans(l *selected, shown *policy.Layer) bool {
	ranking, ok := s.t.set.Selector.(policy.TokenScoring)
	if len(s.heads.each) > 0 || !ok || !l.index.CanScan() || !ranking.Question(shown, &s.tokens.query) {
		return false
	}
	s.tokens.scores = sized(s.tokens.scores, shown.Tokens(0))
	return true
}

// chooseTokens has it choose by the scores that were made.
func (s *selector) chooseTokens(shown *policy.Layer) {
	if s.t.f.o.Scored != nil {
		s.t.f.o.Scored(shown.Index, s.tokens.scores)
	}
	s.t.set.Selector.(policy.TokenScoring).Choose(shown, s.tokens.scores, &s.picks)
}

// beginTokens is ask in parts, for a policy that ranks tokens so: tasks of the scan, behind the last of which is endTokens. scans is false where
// ask is the one task.
func beginTokens(s *selector, l *selected, shown *policy.Layer) (tasks int, scans bool) {
	if !s.scans(l, shown) || shown.Tokens(0) == 0 {
		return 1, false
	}
	return s.tokens.scan.Begin(l.index, &s.tokens.query, shown.KeyDim, s.tokens.scores, s.t.f.o.Pool.Threads()), true
}

func endTokens(s *selector, l *selected, shown *policy.Layer) {
	defer s.t.decided(time.Now())
	s.picks.Reset(shown.KVHeads)
	s.chooseTokens(shown)
	s.ranks = append(s.ranks[:0], s.tokens.scores)
	s.decided(l, shown)
}

// ahead is the query that a layer's tokens are ranked with before its own is known; nil = none.
func (s *selector) ahead(layer int) []float32 {
	return s.layers[layer].query(s.t.obs.needs.QueryOf(layer), nil)
}

// prompted builds what the policy scans at the end of the prompt, after what the prompt drops is gone.
func (s *selector) prompted(layer, rows int) error {
	shown := s.t.Layer(layer, rows)
	return s.refresh(&s.layers[layer], s.t.obs.reader.views, shown)
}

// flushTokens is how many tokens are added to an index before what is full of it is stored below.
const flushTokens = 1024

// fewTokens are added to an index sooner than the other threads would have begun.
const fewTokens = 4

// refresh brings a layer's index, and the sums of values, in line with the cache, a task a KV head.
func (s *selector) refresh(l *selected, views []attention.View, shown *policy.Layer) error {
	if l.index == nil {
		l.index = s.newIndex(shown.Index, views)
	}
	first := l.index.Head(0)
	s.task.of(l.index, views, shown, math.MaxInt)
	if s.below != nil {
		s.task.most = first.Tokens() + flushTokens
	}
	pool := s.t.pool()
	if s.t.set.Projector != nil && first.Tokens() == 0 || len(shown.Pos[0])-first.Tokens() <= fewTokens {
		pool = nil // the policy's Project is not for several threads, and a step's token not worth waking them
	}
	pool.Run(len(views), s.task.head)
	l.index.RefreshJoint(views, shown, s.t.set.Projector)
	l.index.Indexed().Refresh(views, shown)
	if s.below == nil {
		return nil
	}
	if err := s.below.Flush(shown.Index); err != nil {
		return s.indexError(err)
	}
	for g := range views {
		if l.index.Head(g).Tokens() < len(shown.Pos[g]) {
			return s.refresh(l, views, shown)
		}
	}
	return nil
}

// readsFrom is the first token of those of a KV head at positions pos, and more behind them, that a refresh of the index reads beside
// the newest, as far as there is an index; the number of all = there is none.
func (l *selected) readsFrom(kvHead int, pos []int32, more int) int {
	if l.index == nil {
		return len(pos) + more
	}
	return l.index.Head(kvHead).ReadsFrom(pos, more)
}

// newIndex is an empty one for a layer.
func (s *selector) newIndex(layer int, views []attention.View) *keyindex.Index {
	kv := s.t.f.o.Shape.kv(layer)
	x := keyindex.New(s.t.obs.needs.Sketch, kv.Heads, kv.KeyDim)
	if s.t.indexFollows() {
		x.FollowTokens()
	}
	x.UseHuge(s.huge)
	for g := range kv.Heads {
		x.Head(g).SetMoving(s.t.f.Tiered())
		if s.below != nil {
			x.Head(g).KeepBelow(s.below.Stream(layer, g), views[g].Layout.K)
		}
	}
	return x
}

// of says what is refreshed next.
func (t *refreshTask) of(index *keyindex.Index, views []attention.View, layer *policy.Layer, most int) {
	t.index, t.views, t.layer, t.most = index, views, layer, most
}

func (t *refreshTask) one(_, g int) {
	s := t.s
	t.index.Head(g).Refresh(&t.views[g], t.layer.Pos[g], t.most, t.layer, g, s.t.set.Projector)
	if s.means.layers != nil {
		s.means.follow(t.layer.Index, g, &t.views[g])
	}
}

// refreshHot is refresh of an index that holds only the tokens which have a slot: the host's, where a drive scores the others.
// The scales are those of the whole prompt.
func (s *selector) refreshHot(l *selected, views []attention.View, shown *policy.Layer, hot *hotTokens) {
	if l.index == nil {
		l.index = keyindex.New(s.t.obs.needs.Sketch, shown.KVHeads, shown.KeyDim)
		l.index.HoldSlots(hot)
	}
	s.task.of(l.index, views, shown, 0)
	s.t.f.o.Pool.Run(len(views), s.task.head)
}

// query is what a policy scores with: the guessed one, the last step's, or where these are not known the step's own.
func (l *selected) query(kind policy.QueryKind, exact []float32) []float32 {
	switch {
	case kind == policy.QueryGuess && len(l.guess) > 0:
		return l.guess
	case kind == policy.QueryPrevious && len(l.previous) > 0:
		return l.previous
	}
	return exact
}

// wantsGuess reports whether a decode step must guess a layer's query.
func (t *Sequence) wantsGuess(layer int) bool {
	return t.sel != nil && t.obs.needs.QueryOf(layer) == policy.QueryGuess
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

// probe is a layer without tokens, to ask a policy what it would do there.
func (s *selector) probe(layer int) *policy.Layer {
	m := &s.t.f.o.Shape
	heads, kv := m.Layers[layer].Heads, m.kv(layer)
	return &policy.Layer{Index: layer, Layers: len(m.Layers), Heads: heads, KVHeads: kv.Heads, KeyDim: kv.KeyDim, ValueDim: kv.ValueDim, Rows: 1,
		Queries: make([]float32, heads*kv.KeyDim), Pos: make([][]int32, kv.Heads), Scores: keyindex.New(s.t.obs.needs.Sketch, kv.Heads, kv.KeyDim)}
}

// quantised reports whether a layout's pages hold integers.
func quantised(l kvpage.Layout) bool { return l.K.Quantised() || l.V.Quantised() }
