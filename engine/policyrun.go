package engine

import (
	"fmt"
	"slices"

	"terrace/attention"
	"terrace/attention/keyindex"
	"terrace/internal/kernels"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/policy"
)

// policyRun is one session under its policy: what the policy has asked to see, and what it decides, layer by layer.
type policyRun struct {
	m      *model.Model
	set    *policy.Set
	needs  policy.Needs
	state  []layerState
	layer  policy.Layer // refilled for each call
	picks  policy.Picks
	scored []float32 // [tokens] what picks were made from, where that is one score a token; nil = it is not
	keep   []int
	reader kvReader
	pool   *kernels.Pool // of the backend; nil = it lends none
	byHead []headChoice  // of a selecting policy that decides each KV head by itself
	task   headTask
	tiered bool                      // pages come and go
	below  *kvmanager.StoredSketches // nil = sketches are in host memory

	scans    []scanTask
	scan     keyindex.TokenScan
	question policy.TokenQuery
	scores   []float32

	refreshHead, selectHead, scanHead func(worker, g int) // built once, so that a step allocates nothing
	spreadTasks                       func(n int, do func(worker, i int))

	pos    [][]int32
	turned []float32        // queries rotated back
	rotate []*model.Rotator // one a layer, made when asked for
	prompt int              // positions of the prompt

	stages    []*pruneStage    // of a pruning policy whose active tokens are followed while decoding
	scheduler policy.Scheduler // of a dropping policy that acts at some steps only
}

// layerState is what was observed of one layer.
type layerState struct {
	mass     [][]float32 // [Heads][tokens] softmax weights summed over massRows queries
	massRows int
	massAt   int // tokens at the decode step that was last added; 0 = none since the prompt or the last drop
	massOut  attention.Mass
	queries  []float32 // [rows, H·dk] of the newest tokens, oldest first
	rows     int
	stats    *policy.QueryStats

	index       *keyindex.Index // of a selecting policy
	guess       []float32       // this layer's query as guessed from the layer before
	previous    []float32       // this layer's query one step ago
	kept        [][]int32
	share       []float32
	valueSum    []float32 // [KVHeads·dv] over valueTokens tokens
	valueTokens []int     // [KVHeads]
	values      []valueReader
}

// valueReader is scratch for the sums of one KV head's values.
type valueReader struct {
	reader attention.Reader
	row    []float32
}

// newPolicyRun prepares a policy for one sequence; nil for one that changes nothing.
func newPolicyRun(m *model.Model, spec *policy.Spec, kvBytesPerToken int, decomposition *policy.Decomposition, pool *kernels.Pool) (*policyRun, error) {
	if spec == nil {
		return nil, nil
	}
	pm := policyModel(m, kvBytesPerToken)
	pm.Decomposition = decomposition
	set, err := spec.New(pm)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if set.Lossless() {
		return nil, nil
	}
	if set.Masker != nil && set.Needs().PromptMass == policy.AllRows {
		return nil, fmt.Errorf("engine: policy %s wants the attention of all prompt queries, most of which %s leaves out: %w", set, set.Masker.Name(), model.ErrUnsupported)
	}
	r := &policyRun{m: m, set: set, needs: set.Needs(), pool: pool, state: make([]layerState, m.Layers), rotate: make([]*model.Rotator, m.Layers)}
	r.refreshHead, r.selectHead, r.scanHead = r.refreshOne, r.selectOne, r.scanOne
	r.spreadTasks = pool.Run
	if set.Stepper != nil && !set.Follows() && set.Dropper == nil {
		r.needs.StepMass = 0
	}
	r.scheduler, _ = set.Dropper.(policy.Scheduler)
	for i := range r.state {
		if r.needs.ValueMean {
			r.state[i].values = make([]valueReader, m.KVHeads)
			r.state[i].valueSum, r.state[i].valueTokens = make([]float32, m.KVHeads*m.ValDim), make([]int, m.KVHeads)
		}
	}
	return r, r.splitHeads(spec, pm)
}

// splitHeads makes an instance a KV head of a selecting policy that decides each head by itself.
func (r *policyRun) splitHeads(spec *policy.Spec, pm policy.Model) error {
	if _, ok := r.set.Selector.(policy.HeadSelector); !ok {
		return nil
	}
	for range r.m.KVHeads {
		set, err := spec.New(pm)
		if err != nil {
			return fmt.Errorf("engine: %w", err)
		}
		r.byHead = append(r.byHead, headChoice{selector: set.Selector})
	}
	return nil
}

// policyModel is the part of a model that policies may look at.
func policyModel(m *model.Model, kvBytesPerToken int) policy.Model {
	p := policy.Model{Name: m.Name, Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, KeyDim: m.KeyDim, ValueDim: m.ValDim,
		Hidden: m.Hidden, KVBytes: kvBytesPerToken, Context: m.Context, Window: make([]int, m.Layers)}
	for i, l := range m.Layer {
		p.Window[i] = l.Window
	}
	return p
}

// free gives back what it keeps on tiers; nil has nothing.
func (r *policyRun) free() error {
	if r == nil {
		return nil
	}
	err := r.below.Free()
	r.below = nil
	return err
}

// global reports whether policies act on a layer: those with a sliding window are left alone.
func (r *policyRun) global(layer int) bool { return r.m.Layer[layer].Window == 0 }

// lastRows is how many of a prompt's last tokens must be read in one pass for the policy to see them together.
func (r *policyRun) lastRows() int {
	if r == nil {
		return 1
	}
	return max(1, r.needs.PromptMass)
}

// chunk is how many of the left rows of a prompt the next pass takes, size at most: the policy sees the last rows in one.
func (r *policyRun) chunk(left, size int) int {
	w := r.lastRows()
	if left <= max(w, size) {
		return left
	}
	return max(1, min(size, left-w))
}

// wantsMass reports whether attention weights of the pass that brings the sequence to n tokens are needed. A policy that
// drops at some steps only is shown the last StepMass queries up to such a step, and costs nothing at the others.
func (r *policyRun) wantsMass(prefill, last bool, n int) bool {
	switch {
	case prefill:
		return r.needs.PromptMass == policy.AllRows || (last && r.needs.PromptMass > 0)
	case r.needs.StepMass == 0 || r.scheduler == nil:
		return r.needs.StepMass != 0
	}
	for ahead := range r.needs.StepMass {
		if r.scheduler.Due(n+ahead, r.prompt) {
			return true
		}
	}
	return false
}

// before runs once a layer, after the pass's keys are in the cache: it collects queries and asks for weights.
func (r *policyRun) before(s *Session, layer int, q []float32, prefill, last bool, seq *attention.Seq) error {
	if !r.global(layer) {
		return nil
	}
	st, rows := &r.state[layer], len(seq.Pos)
	if prefill || r.set.Dropper != nil || r.swaps(layer) {
		r.collect(layer, q, seq.Pos)
	}
	if !prefill && s.place != nil && s.place.pool != nil {
		return s.place.read(layer, q, seq)
	}
	if !prefill {
		if err := r.choose(s, layer, q, seq); err != nil {
			return err
		}
		r.readActive(s, layer, seq)
	}
	if n := int(s.next) + rows; r.wantsMass(prefill, last, n) && (r.set.Stepper == nil || r.prunes(layer)) {
		r.askMass(st, s, layer, rows, n, prefill)
		seq.Mass = &st.massOut
	}
	return nil
}

// collect keeps what the policy has asked for of a pass's queries.
func (r *policyRun) collect(layer int, q []float32, pos []int32) {
	if !r.global(layer) {
		return
	}
	r.collectQueries(&r.state[layer], q, len(pos))
	r.collectStats(&r.state[layer], layer, q, pos)
}

// collectQueries keeps the newest rows.
func (r *policyRun) collectQueries(st *layerState, q []float32, rows int) {
	want, width := r.needs.Queries, r.m.Heads*r.m.KeyDim
	if want == 0 {
		return
	}
	st.queries = append(st.queries, q[:rows*width]...)
	st.rows += rows
	if want > 0 && st.rows > want {
		n := copy(st.queries, st.queries[(st.rows-want)*width:])
		st.queries, st.rows = st.queries[:n], want
	}
}

// statRows is how many queries are rotated back at a time.
const statRows = 64

// collectStats adds the queries, rotated back, to their mean and covariance.
func (r *policyRun) collectStats(st *layerState, layer int, q []float32, pos []int32) {
	if !r.needs.QueryStats {
		return
	}
	if st.stats == nil {
		st.stats = policy.NewQueryStats(r.m.Heads, r.m.KeyDim)
	}
	width, dim, rot := r.m.Heads*r.m.KeyDim, r.m.KeyDim, r.rotator(layer)
	r.turned = sized(r.turned, statRows*width)
	n := 0
	for i, p := range pos {
		if int(p) < r.needs.QueryStatsFrom {
			continue
		}
		row := r.turned[n*width : (n+1)*width]
		copy(row, q[i*width:(i+1)*width])
		for h := range r.m.Heads {
			rot.Unrotate(row[h*dim:(h+1)*dim], int(p))
		}
		if n++; n == statRows {
			st.stats.Add(r.turned, n)
			n = 0
		}
	}
	st.stats.Add(r.turned, n)
}

func (r *policyRun) rotator(layer int) *model.Rotator {
	if r.rotate[layer] == nil {
		r.rotate[layer] = r.m.NewRotator(layer)
	}
	return r.rotate[layer]
}

// askMass sizes the sums for the tokens now in the cache: kept across a prompt's chunks, and across the newest StepMass
// steps, as far back as nothing was dropped.
func (r *policyRun) askMass(st *layerState, s *Session, layer, rows, n int, prefill bool) {
	if st.mass == nil {
		st.mass = make([][]float32, r.m.Heads)
	}
	fresh := !prefill && (r.needs.StepMass == 1 || st.massAt != n-1)
	for h := range st.mass {
		tokens := s.seq.Tokens(layer, h/r.m.Group())
		if fresh {
			st.mass[h] = st.mass[h][:0]
		}
		had := len(st.mass[h])
		st.mass[h] = slices.Grow(st.mass[h], tokens-had)[:tokens]
		clear(st.mass[h][had:])
	}
	st.massOut = attention.Mass{Sum: st.mass}
	switch {
	case fresh:
		st.massRows, st.massAt = 1, n
	case !prefill:
		st.massRows, st.massAt = st.massRows+1, n
	case r.needs.PromptMass == policy.AllRows:
		st.massRows += rows
	default:
		st.massOut.FromRow = max(0, rows-r.needs.PromptMass)
		st.massRows = min(rows, r.needs.PromptMass)
	}
}

// after runs once a layer, after its attention: the policy decides what stays.
func (r *policyRun) after(s *Session, layer, rows int, prefill, last bool) error {
	if !r.global(layer) || (prefill && !last) {
		return nil
	}
	if prefill {
		r.prompt = int(s.next) + rows
		if o, ok := r.set.Selector.(policy.PromptObserver); ok {
			o.ObservePrompt(r.observe(s, layer, rows))
		}
		if r.set.Keeper != nil {
			r.picks.Reset(r.m.KVHeads)
			r.set.Keeper.KeepPrompt(r.observe(s, layer, rows), &r.picks)
			if err := r.keepPicks(s, layer); err != nil {
				return err
			}
		}
		if s.place == nil || !s.place.hie.serves(layer) {
			if err := r.sketchPrompt(s, layer, rows); err != nil {
				return err
			}
		}
		if err := s.place.prompted(layer); err != nil {
			return err
		}
		r.forget(layer)
		return nil
	}
	if r.set.Dropper == nil || !r.dueAt(int(s.next)+rows) {
		return nil
	}
	r.picks.Reset(r.m.KVHeads)
	r.set.Dropper.DropStep(r.observe(s, layer, rows), &r.picks)
	r.state[layer].massAt = 0
	return r.dropPicks(s, layer)
}

// dueAt reports whether the dropping policy acts at the step that brings the sequence to n tokens.
func (r *policyRun) dueAt(n int) bool {
	return r.set.Dropper != nil && (r.scheduler == nil || r.scheduler.Due(n, r.prompt))
}

// forget frees what only the end of the prompt needed.
func (r *policyRun) forget(layer int) {
	st := &r.state[layer]
	if r.set.Dropper == nil {
		st.stats = nil
	}
	if r.needs.StepMass == 0 {
		st.mass = nil
	}
	for h := range st.mass {
		st.mass[h] = st.mass[h][:0]
	}
	if r.set.Dropper == nil && r.set.Swapper == nil {
		st.queries, st.rows = nil, 0
	}
}

// observe fills the policy's view of a layer.
func (r *policyRun) observe(s *Session, layer, rows int) *policy.Layer {
	st, m := &r.state[layer], r.m
	r.pos = r.pos[:0]
	for g := range m.KVHeads {
		r.pos = append(r.pos, s.seq.PositionList(layer, g))
	}
	r.reader.views = s.seq.Views(layer)
	r.layer = policy.Layer{Index: layer, Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, KeyDim: m.KeyDim, ValueDim: m.ValDim,
		Scale: m.Scale(), Window: m.Layer[layer].Window, N: int(s.next) + rows, Prompt: r.prompt, KVBytes: s.e.kvBytesPerToken(),
		Pos: r.pos, KV: &r.reader, Rope: r.rotator(layer), Queries: st.queries, Rows: st.rows, Stats: st.stats, Mass: st.mass, MassRows: st.massRows}
	return &r.layer
}

// keepPicks keeps what was picked in every head.
func (r *policyRun) keepPicks(s *Session, layer int) error {
	if r.picks.All {
		return nil
	}
	for g, idx := range r.picks.Heads {
		r.keep = r.keep[:0]
		for _, i := range idx {
			r.keep = append(r.keep, int(i))
		}
		if err := s.seq.Keep(layer, g, r.keep); err != nil {
			return fmt.Errorf("engine: policy %s: %w", r.set, err)
		}
	}
	return nil
}

// dropPicks keeps everything but what was picked.
func (r *policyRun) dropPicks(s *Session, layer int) error {
	if r.picks.All {
		return fmt.Errorf("engine: policy %s drops every token: %w", r.set, kvmanager.ErrPlan)
	}
	for g, idx := range r.picks.Heads {
		if len(idx) == 0 {
			continue
		}
		r.keep = r.keep[:0]
		at := 0
		for i := range s.seq.Tokens(layer, g) {
			if at < len(idx) && int(idx[at]) == i {
				at++
				continue
			}
			r.keep = append(r.keep, i)
		}
		if err := s.seq.Keep(layer, g, r.keep); err != nil {
			return fmt.Errorf("engine: policy %s: %w", r.set, err)
		}
	}
	return nil
}

// kvReader gives policies float32 rows of cached keys and values.
type kvReader struct {
	views []attention.View
	bulk  attention.Reader
}

// Keys implements policy.KV.
func (k *kvReader) Keys(kvHead, from, to int, dst []float32) {
	k.bulk.Keys(&k.views[kvHead], from, to, dst)
}

// Values implements policy.KV.
func (k *kvReader) Values(kvHead, from, to int, dst []float32) {
	k.bulk.Values(&k.views[kvHead], from, to, dst)
}
