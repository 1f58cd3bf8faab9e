package engine

import (
	"context"
	"fmt"
	"terrace/attention/keyindex"

	"terrace/csdshim"
	"terrace/offload"
	"terrace/policy"
)

// hie has the drive score a session's cold tokens (HillInfer's hierarchical importance evaluation, algorithms.md 1.5): a
// layer's query is broadcast, the drive scores the tokens that are cold while the host scores those that are hot, and both
// are merged while score blocks stream in. Scores are the same numbers wherever they were made, so the selection is that of
// the policy alone. The host keeps low-bit keys of hot tokens only.
type hie struct {
	p      *placement
	drive  offload.Scorer
	rank   policy.TokenScoring
	hot    hotTokens
	layers []hieLayer
	scores []float32 // of the hot tokens, by slot
	pos    []int32   // of them, and their scores, as they are merged
	part   []float32
	best   []int32
	moving exchange
	use    *ScoreUse
}

// hieLayer is what is known and under way of a layer.
type hieLayer struct {
	told   *telling // its scales
	stored int      // blocks that the drive is known to have
	all    bool     // the policy reads the layer whole: nothing of it is scored
	asking bool     // ask is under way
	ask    asked
	query  policy.TokenQuery
}

// ScoreUse counts the tokens that were scored, over all layers and steps, and by whom.
type ScoreUse struct {
	HostTokens, DriveTokens int64
	Questions               int64 // to the drive
	BlockBytes              int64 // of score blocks that came from it
	Again                   int64 // calls to the drive that were done a second time
	Refused                 int64 // times that the drive could not score; from then on the host did
	SketchBytes, SavedBytes int64 // low-bit keys in host memory now, and those of the tokens that the drive scores instead
}

// driveCodes is what a drive makes of the keys for a policy; CodesNone where the host scores.
func driveCodes(needs policy.Needs) csdshim.Codes {
	if !needs.Together || needs.HostScores {
		return csdshim.CodesNone
	}
	switch needs.Sketch.Kind {
	case policy.SketchInt8:
		return csdshim.CodesInt8
	case policy.SketchInt4:
		return csdshim.CodesInt4
	case policy.SketchHalf:
		return csdshim.CodesHalf
	}
	return csdshim.CodesNone
}

// newHIE prepares a session whose policy can use the drive's scores; nil for others.
func (e *Engine) newHIE(p *placement) *hie {
	r := p.run
	drive, ok := e.tiers.store.(offload.Scorer)
	rank, ranks := r.set.Selector.(policy.TokenScoring)
	codes := driveCodes(r.needs)
	if !ok || !ranks || r.set.Keeper != nil || r.set.Placer == nil || codes == csdshim.CodesNone || drive.Scores() != codes || p.s.hostScores {
		return nil
	}
	probe := r.probe()
	if !rank.Question(probe, &policy.TokenQuery{}) {
		return nil
	}
	h := &hie{p: p, drive: drive, rank: rank, layers: make([]hieLayer, e.m.Layers), use: &e.scoreUse}
	for probe.Index = range h.layers {
		_, _, h.layers[probe.Index].all = rank.Wanted(probe)
	}
	return h
}

// probe is a layer without tokens, to ask a policy whether the drive may score.
func (r *policyRun) probe() *policy.Layer {
	m := r.m
	return &policy.Layer{Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, KeyDim: m.KeyDim, ValueDim: m.ValDim, Rows: 1,
		Queries: make([]float32, m.Heads*m.KeyDim), Pos: make([][]int32, m.KVHeads), Scores: keyindex.New(r.needs.Sketch, m.KVHeads, m.KeyDim)}
}

// tokenBytes is what a hot token's low-bit key takes in a layer.
func (h *hie) tokenBytes() int {
	if h == nil {
		return 0
	}
	m := h.p.run.m
	switch h.p.run.needs.Sketch.Kind {
	case policy.SketchInt4:
		return m.KVHeads * m.KeyDim / 2
	case policy.SketchInt8:
		return m.KVHeads * m.KeyDim
	}
	return 2 * m.KVHeads * m.KeyDim
}

// serves reports whether a layer's tokens are scored here and on the drive.
func (h *hie) serves(layer int) bool { return h != nil && !h.layers[layer].all }

// prompted sketches the hot tokens of a layer at the end of a prompt, the newest, and tells the drive how to read the others.
func (h *hie) prompted(layer, n, hot int) {
	r, s := h.p.run, h.p.s
	st := &r.state[layer]
	open := n / s.blockTokens() * s.blockTokens() // the drive has complete blocks
	h.hot.extend(n, min(n-hot, open))
	l := r.observe(s, layer, 1)
	r.sketchHot(st, r.reader.views, l, &h.hot)
	hl := &h.layers[layer]
	if hl.told == nil {
		hl.told = h.tell(layer, st.index.Scales())
	}
}

// telling is a message to the drive under way.
type telling struct {
	done chan struct{}
	err  error
}

// tell sends a layer's scales, which need not arrive before the layer's first question.
func (h *hie) tell(layer int, scales []float32) *telling {
	t := &telling{done: make(chan struct{})}
	if len(scales) == 0 {
		close(t.done)
		return t
	}
	home := h.p.s.seq.Home()
	go func() {
		defer close(t.done)
		t.err = h.drive.SetScales(context.Background(), home, layer, scales)
	}()
	return t
}

// ready waits until the drive can score a layer's cold tokens.
func (h *hie) ready(layer, cold int) error {
	hl, seq, t := &h.layers[layer], h.p.s.seq, h.p.s.blockTokens()
	if blocks := (cold + t - 1) / t; hl.stored < blocks {
		if err := seq.AwaitStored(layer, blocks); err != nil {
			return err
		}
		hl.stored = blocks
	}
	<-hl.told.done
	if hl.told.err != nil {
		return fmt.Errorf("engine: %w, scales of layer %d: %w", errScoring, layer, hl.told.err)
	}
	return nil
}

// step begins a decode step that brings the session to n tokens: the newest is hot.
func (h *hie) step(n int) {
	if h != nil {
		h.hot.hold(n - 1)
	}
}

// stepped ends one: as many tokens stay hot as the policy wants of n, at most capacity.
func (h *hie) stepped(n, capacity int, m *policy.Moves) {
	placer, t := h.p.run.set.Placer, h.p.s.blockTokens()
	if placer.WholeTokens() {
		h.exchange(n, m)
		return
	}
	target, complete := placer.HotTokens(n, capacity), n/t*t
	for i := h.hot.coldEnd; h.hot.held > target && i < complete; i++ {
		h.hot.release(i)
	}
}

// count brings the account of memory up to date.
func (h *hie) count(sketchBytes int64) {
	cold := len(h.hot.of) - h.hot.held
	pooled := 0
	for _, ok := range h.p.pooled {
		if ok {
			pooled++
		}
	}
	h.use.SketchBytes, h.use.SavedBytes = sketchBytes, int64(cold)*int64(h.tokenBytes())*int64(pooled)
}

// end waits for what is under way; its outcome belongs to nobody.
func (h *hie) end() {
	if h == nil {
		return
	}
	for i := range h.layers {
		hl := &h.layers[i]
		hl.abandon()
		if hl.told != nil {
			<-hl.told.done
		}
	}
	h.abandonExchange()
}

// cut forgets the tokens from n on.
func (h *hie) cut(n int) {
	for i := range h.layers {
		h.layers[i].abandon()
	}
	h.abandonExchange()
	h.hot.cut(n)
}
