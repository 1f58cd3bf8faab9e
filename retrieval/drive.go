package retrieval

import (
	"context"
	"fmt"
	"slices"
	"time"

	"terrace/csdshim"
	"terrace/offload"
	"terrace/policy"
)

// driveScoring has the drive score a text's cold tokens (HillInfer's hierarchical importance evaluation, algorithms.md 1.5): a
// layer's query is broadcast, the drive scores the tokens that are cold while the host scores those that are hot, and both
// are merged while score blocks stream in. Scores are the same numbers wherever they were made, so the selection is that of
// the policy alone. The host keeps low-bit keys of hot tokens only.
type driveScoring struct {
	c      *cached
	drive  offload.Scorer
	rank   policy.TokenScoring
	hot    *hotTokens // the same in every layer; nil = each layer has its own, because a pruned prompt has other tokens in each
	layers []driveLayer
	scores []float32 // of the hot tokens, by slot
	pos    []int32   // of them, and their scores, as they are merged
	part   []float32
	best   []int32
	moving migration
	use    *ScoreUse
}

// driveLayer is what is known and under way of a layer.
type driveLayer struct {
	hot     *hotTokens
	told    *telling // its scales
	stored  int      // blocks that the drive is known to have
	all     bool     // the policy reads the layer whole: nothing of it is scored
	open    bool     // request is under way
	request scoreRequest
	query   policy.TokenQuery
}

// ScoreUse counts the tokens that were scored, over all layers and steps, and by whom.
type ScoreUse struct {
	HostTokens, DriveTokens int64         // whose scores were used; together every ranked token once
	Questions               int64         // to the drive
	Messages                int64         // that they went in: those of a batch's texts about a layer go together
	ScanBytes               int64         // of codes that the drive read for them
	BlockBytes              int64         // of score blocks that came from it, 4 a token; those of tokens that the host took over meanwhile too
	Again                   int64         // calls to the drive that were done a second time
	Refused                 int64         // times that the drive could not score; from then on the host did
	Waited                  time.Duration // passes stood still for scores
	SketchBytes, SavedBytes int64         // low-bit keys in host memory now, and those of the tokens that the drive scores instead
}

// driveCodes is what a drive makes of the keys for a policy; CodesNone where the host scores.
func driveCodes(needs *policy.Needs) csdshim.Codes {
	if !needs.SharedAcrossHeads || needs.HostScores {
		return csdshim.CodesNone
	}
	switch needs.Sketch.Kind {
	case policy.SketchInt8:
		return csdshim.CodesInt8
	case policy.SketchInt4:
		return csdshim.CodesInt4
	case policy.SketchHalf:
		return csdshim.CodesHalf
	case policy.SketchProduct:
		return csdshim.CodesProduct
	}
	return csdshim.CodesNone
}

// newDriveScoring prepares a text whose policy can use the drive's scores; nil for others.
func newDriveScoring(c *cached, hostScores bool) *driveScoring {
	t := c.t
	rank, ranks := t.set.Selector.(policy.TokenScoring)
	codes := driveCodes(&t.obs.needs)
	if t.f.drive == nil || hostScores || !ranks || t.set.Keeper != nil || t.set.Placer == nil || codes == csdshim.CodesNone || t.f.drive.Scores() != codes {
		return nil
	}
	if t.set.Pruner != nil && t.set.Placer.WholeTokens() {
		return nil // a token is hot in all layers or in none, and not all layers have it
	}
	probe := t.sel.probe(c.budget.firstSelecting())
	if !rank.Question(probe, &policy.TokenQuery{}) {
		return nil
	}
	h := &driveScoring{c: c, drive: t.f.drive, rank: rank, layers: make([]driveLayer, len(t.f.o.Shape.Layers)), use: &t.f.accounts.scores}
	h.moving.h = h
	if t.set.Pruner == nil {
		h.hot = &hotTokens{}
	}
	for probe.Index = range h.layers {
		hl := &h.layers[probe.Index]
		_, _, hl.all = rank.Wanted(probe)
		if hl.hot = h.hot; hl.hot == nil {
			hl.hot = &hotTokens{}
		}
	}
	return h
}

// tokenBytes is what a hot token's low-bit key takes in a layer.
func (h *driveScoring) tokenBytes() int {
	if h == nil {
		return 0
	}
	kv := h.c.t.f.o.Shape.kv(h.c.budget.firstSelecting()) // a drive takes layers of one shape
	switch h.c.t.obs.needs.Sketch.Kind {
	case policy.SketchProduct:
		return kv.Heads * kv.KeyDim / 4
	case policy.SketchInt4:
		return kv.Heads * kv.KeyDim / 2
	case policy.SketchInt8:
		return kv.Heads * kv.KeyDim
	}
	return 2 * kv.Heads * kv.KeyDim
}

// asking reports whether a layer's scores are under way.
func (h *driveScoring) asking(layer int) bool { return h != nil && h.layers[layer].open }

// serves reports whether a layer's tokens are scored here and on the drive.
func (h *driveScoring) serves(layer int) bool { return h != nil && !h.layers[layer].all }

// prompted sketches the hot tokens of a layer at the end of a prompt, the newest, and tells the drive how to read the others.
func (h *driveScoring) prompted(layer, n, hot int) {
	t := h.c.t
	complete := n / t.f.blockTokens() * t.f.blockTokens() // the drive has complete blocks
	hl := &h.layers[layer]
	hl.hot.extend(n, min(n-hot, complete))
	shown, l := t.Layer(layer, 1), &t.sel.layers[layer]
	t.sel.refreshHot(l, t.obs.reader.views, shown, hl.hot)
	if hl.told == nil {
		hl.told = h.tell(layer, l.index.Scales())
	}
}

// telling is a message to the drive under way.
type telling struct {
	done chan struct{}
	err  error
}

// tell sends a layer's scales, which need not arrive before the layer's first question.
func (h *driveScoring) tell(layer int, scales []float32) *telling {
	t := &telling{done: make(chan struct{})}
	if len(scales) == 0 {
		close(t.done)
		return t
	}
	home := h.c.t.seq.Home()
	inBackground(h.c.t.f, func() {
		defer close(t.done)
		t.err = h.drive.SetScales(context.Background(), home, layer, scales)
	})
	return t
}

// ready waits until the drive can score a layer's cold tokens.
func (h *driveScoring) ready(layer, cold int) error {
	hl, seq, t := &h.layers[layer], h.c.t.seq, h.c.t.f.blockTokens()
	if blocks := (cold + t - 1) / t; hl.stored < blocks {
		if err := seq.AwaitStored(layer, blocks); err != nil {
			return err
		}
		hl.stored = blocks
	}
	waitFor(h.c.t.f, hl.told.done)
	if hl.told.err != nil {
		return fmt.Errorf("retrieval: %w, scales of layer %d: %w", errScoring, layer, hl.told.err)
	}
	return nil
}

// step begins a decode step that brings the session to n tokens: the newest is hot.
func (h *driveScoring) step(n int) {
	if h == nil {
		return
	}
	for layer := range h.each {
		h.layers[layer].hot.hold(h.tokens(layer, n-1))
	}
}

// each calls do with the layers whose hot tokens are counted apart: the first alone where all have the same.
func (h *driveScoring) each(do func(layer int) bool) {
	if h.hot != nil {
		do(0)
		return
	}
	for layer := range h.layers {
		if h.serves(layer) && h.c.layers[layer].selects && !do(layer) {
			return
		}
	}
}

// tokens is how many of a text's n tokens a layer has.
func (h *driveScoring) tokens(layer, n int) int {
	if h.hot != nil {
		return n
	}
	return h.c.t.seq.Tokens(layer, 0)
}

// held is how many tokens the host scores of a layer, on average.
func (h *driveScoring) held() int {
	n, layers := 0, 0
	for layer := range h.each {
		n, layers = n+h.layers[layer].hot.held, layers+1
	}
	return n / max(layers, 1)
}

// stepped ends one: as many tokens stay hot as the policy wants of n, at most capacity.
func (h *driveScoring) stepped(n, capacity int, m *policy.Moves) {
	placer, t := h.c.t.set.Placer, h.c.t.f.blockTokens()
	if placer.WholeTokens() {
		h.moving.migrate(n, m)
		return
	}
	for layer := range h.each {
		hot, n := h.layers[layer].hot, h.tokens(layer, n)
		target, complete := placer.HotTokens(n, min(capacity, n)), n/t*t
		for i := hot.coldEnd; hot.held > target && i < complete; i++ {
			hot.release(i)
		}
	}
}

// count brings the account of memory up to date.
func (h *driveScoring) count(sketchBytes int64) {
	if h == nil {
		return
	}
	cold := 0
	for layer, l := range h.c.layers {
		if hot := h.layers[layer].hot; l.selects {
			cold += len(hot.of) - hot.held
		}
	}
	h.use.SketchBytes, h.use.SavedBytes = sketchBytes, int64(cold)*int64(h.tokenBytes())
}

// end waits for what is under way, whose outcome belongs to nobody, and forgets what is hot and what the drive was told.
func (h *driveScoring) end() {
	if h == nil {
		return
	}
	for i := range h.layers {
		hl := &h.layers[i]
		hl.abandon(h.c.t.f)
		if hl.told != nil {
			waitFor(h.c.t.f, hl.told.done)
		}
		*hl.hot = hotTokens{}
		hl.told, hl.stored = nil, 0
	}
	h.moving.abandon()
	h.moving = migration{h: h}
}

// cut forgets the tokens from n on.
func (h *driveScoring) cut(n int) {
	if h == nil {
		return
	}
	for i := range h.layers {
		h.layers[i].abandon(h.c.t.f)
	}
	h.moving.abandon()
	for layer := range h.each {
		at := n
		if h.hot == nil {
			at, _ = slices.BinarySearch(h.c.t.seq.PositionList(layer, 0), int32(n))
		}
		h.layers[layer].hot.cut(at)
	}
}

// DriveGroupTokens is the number of tokens of a record that a drive takes.
const DriveGroupTokens = csdshim.GroupTokens

// OpenDrive connects to a drive for texts under policies with these needs: it scores keys where the policy ranks tokens by
// what it can compute, whatever codes the options name.
func OpenDrive(ctx context.Context, socket string, record offload.Shape, needs policy.Needs, o offload.CSDOptions) (offload.Store, error) {
	o.Codes = csdshim.CodesNone
	if !quantised(record.Page) {
		o.Codes = driveCodes(&needs)
	}
	return offload.OpenCSD(ctx, socket, record, o)
}
