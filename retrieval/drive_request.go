package retrieval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"terrace/csdshim"
	"terrace/internal/trace"
	"terrace/offload"
	"terrace/policy"
)

// scoreRequest is a request for the scores of a layer's tokens, under way.
type scoreRequest struct {
	below    int       // tokens that are ranked
	query    []float32 // [Heads·KeyDim]
	unscored bool      // the host has yet to score those that are hot
	asked    int       // the cold tokens below it are the drive's to score; 0 = none
	order    recordOrder
	cancel   context.CancelFunc
	done     chan struct{} // nil = the drive was not asked
	err      error

	mu     sync.Mutex
	merger policy.Merger
	scored int   // tokens merged
	hot    int   // of them, the host's
	cold   int64 // of them, the drive's
	blocks int64 // bytes of score blocks
	timing csdshim.Timing
	sent   *driveMessage
	pos    []int32 // scratch
	part   []float32
}

// ask readies a layer's query for the drive and for the host; Shared.askAll broadcasts it.
func (h *driveScoring) ask(layer int, q []float32) error {
	t, hl := h.c.t, &h.layers[layer]
	l := t.Layer(layer, 1)
	l.Queries, l.Rows, l.Scores = q, 1, t.sel.layers[layer].index
	k, below, _ := h.rank.Wanted(l)
	a := &hl.request
	hl.open, a.below, a.done, a.err, a.scored, a.cold, a.blocks, a.asked = true, below, nil, nil, 0, 0, 0, 0
	a.query, a.unscored, a.hot = q, true, 0
	h.rank.Question(l, &hl.query)
	a.merger.Reset(k)
	if cold := min(hl.hot.coldEnd, below); cold > 0 {
		if err := h.ready(layer, cold); err != nil {
			return err
		}
		if a.asked = cold; t.set.Pruner != nil {
			if err := a.order.of(t, layer, cold); err != nil {
				return err
			}
		}
	}
	h.c.t.f.asking = append(h.c.t.f.asking, asking{h, layer})
	return nil
}

// asking is a text's question about a layer that is ready to be asked.
type asking struct {
	h     *driveScoring
	layer int
}

// askAll broadcasts the questions at hand, those to the drive in one message: it begins, and the host scores its part meanwhile, at once or
// beside the attention to come (later).
func (f *Shared) askAll(later bool) {
	if len(f.asking) == 0 {
		return
	}
	var list []csdshim.Question
	asked := make([]*scoreRequest, 0, len(f.asking))
	f.asking = slices.DeleteFunc(f.asking, func(x asking) bool { return !x.h.layers[x.layer].open }) // of a text that has failed since
	for i := range f.asking {
		x := &f.asking[i]
		if a := &x.h.layers[x.layer].request; a.asked > 0 {
			list = append(list, x.h.question(x.layer, a))
			asked = append(asked, a)
		}
	}
	f.send(list, asked)
	for i := range f.asking {
		x := &f.asking[i]
		hl := &x.h.layers[x.layer]
		if hl.request.done != nil && x.h.rank.Serial() {
			awaitScores(f, hl.request.done)
		} else if later {
			continue
		}
		scoreHot(x.h, x.layer)
	}
	f.asking = f.asking[:0]
}

// send has the drive answer questions, several in one message where it takes that. The message is cancelled when nobody wants an answer of
// it any more.
func (f *Shared) send(list []csdshim.Question, asked []*scoreRequest) {
	many, batches := f.drive.(offload.ManyScorer)
	if len(list) == 0 {
		return
	}
	f.accounts.scores.Questions += int64(len(list))
	if batches && len(list) > 1 {
		ctx, cancel := context.WithCancel(context.Background())
		wanted, sent := atomic.Int64{}, &driveMessage{}
		wanted.Store(int64(len(list)))
		for _, a := range asked {
			a.sent = sent
			a.cancel = func() {
				if wanted.Add(-1) == 0 {
					cancel()
				}
			}
		}
		f.accounts.scores.Messages++
		inBackground(f, func() {
			defer cancel()
			many.ScoreMany(ctx, list)
		})
		return
	}
	f.accounts.scores.Messages += int64(len(list))
	for i := range list {
		ctx, cancel := context.WithCancel(context.Background())
		asked[i].cancel, asked[i].sent = cancel, &driveMessage{}
		inBackground(f, func() {
			defer cancel()
			list[i].Done(f.drive.Score(ctx, list[i].Seq, list[i].Layer, list[i].Query, list[i].Each))
		})
	}
}

// question is a layer's, to the drive: for the scores of the cold tokens.
func (h *driveScoring) question(layer int, a *scoreRequest) csdshim.Question {
	hl := &h.layers[layer]
	q := &csdshim.Query{Codes: h.drive.Scores(), Int8: hl.query.Int8, Shift: hl.query.Shift, Block: h.rank.BlockLen(), Limit: a.order.limit(a.asked)}
	if q.Codes.Floats() {
		q.Float, q.Int8 = hl.query.Float, nil
	}
	a.done = make(chan struct{})
	span := h.c.t.f.o.Trace.Shared(trace.CSD, "score", layer)
	return csdshim.Question{Seq: h.c.t.seq.Home(), Layer: layer, Query: q,
		Each: func(b *csdshim.Block) error { return h.merge(hl.hot, a, b) },
		Done: func(t csdshim.Timing, err error) {
			a.timing, a.err = t, err
			span.EndBytes(a.blocks)
			close(a.done)
		}}
}

// merge takes a block of the drive's scores; tokens that are hot are the host's.
func (h *driveScoring) merge(hot *hotTokens, a *scoreRequest, b *csdshim.Block) error {
	a.pos, a.part = a.pos[:0], a.part[:0]
	for i, stored := range b.Positions {
		if at := a.order.token(stored); at >= 0 && int(at) < a.asked && hot.Slot(int(at)) < 0 {
			a.pos, a.part = append(a.pos, at), append(a.part, b.Scores[i])
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.merger.Add(a.pos, a.part)
	a.scored += len(a.pos)
	a.cold += int64(len(a.pos))
	a.blocks += int64(4 * len(b.Positions))
	return nil
}

// shown is a layer that is asked about, as the policy sees it.
func (h *driveScoring) shown(layer int) *policy.Layer {
	t := h.c.t
	l := t.Layer(layer, 1)
	l.Queries, l.Rows, l.Scores = h.layers[layer].request.query, 1, t.sel.layers[layer].index
	return l
}

// scoreHot scores the tokens that the host holds keys of.
func scoreHot(h *driveScoring, layer int) {
	defer h.c.t.f.o.Trace.Layer(trace.Score, "hot", layer).End()
	tasks, scans := beginHot(h, layer)
	if scans {
		scan := &h.c.t.sel.tokens.scan
		h.c.t.f.o.Pool.Run(tasks, scan.Chunk)
	}
	endHot(h, h.shown(layer), scans)
	h.counted(&h.layers[layer].request)
}

// beginHot is scoreHot in parts: tasks of the scan, behind the last of which is endHot; scans is false where that is all.
func beginHot(h *driveScoring, layer int) (tasks int, scans bool) {
	sel, hl := h.c.t.sel, &h.layers[layer]
	h.scores = sized(h.scores, len(hl.hot.index))
	if x := sel.layers[layer].index; len(h.scores) > 0 && x.CanScan() {
		return sel.tokens.scan.Begin(x, &hl.query, h.c.t.f.o.Shape.kv(layer).KeyDim, h.scores, h.c.t.f.o.Pool.Threads()), true
	}
	return 1, false
}

// endHot merges the host's scores.
func endHot(h *driveScoring, l *policy.Layer, scanned bool) {
	hl := &h.layers[l.Index]
	hot, a := hl.hot, &hl.request
	if !scanned {
		h.rank.Score(l, &hl.query, h.scores)
	}
	h.pos, h.part = h.pos[:0], h.part[:0]
	for slot, i := range hot.index {
		if i >= 0 && int(i) < a.below {
			h.pos, h.part = append(h.pos, i), append(h.part, h.scores[slot])
		}
	}
	h.c.t.f.scanned(l.Index, len(h.pos))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.merger.Add(h.pos, h.part)
	a.scored += len(h.pos)
	a.hot, a.unscored = len(h.pos), false
}

// counted adds a layer's to the account, which texts share.
func (h *driveScoring) counted(a *scoreRequest) { h.use.HostTokens += int64(a.hot) }

// answered reports whether a layer was asked and its outcome is there.
func (h *driveScoring) answered(layer int) bool {
	hl := &h.layers[layer]
	if !hl.open || hl.request.done == nil {
		return hl.open
	}
	select {
	case <-hl.request.done:
		return true
	default:
		return false
	}
}

// settle waits for a layer's answer and decides.
func (h *driveScoring) settle(layer int, picks *policy.Selection) error {
	t, hl := h.c.t, &h.layers[layer]
	a := &hl.request
	if a.unscored { // nobody attended beside it
		scoreHot(h, layer)
	}
	hl.open = false
	l := t.Layer(layer, 1)
	l.Rows, l.Scores = 1, t.sel.layers[layer].index
	if err := h.await(a); err != nil {
		return fmt.Errorf("retrieval: %w, layer %d: %w", errScoring, layer, err)
	}
	if a.scored != a.below {
		return fmt.Errorf("retrieval: %w: %w, layer %d: %d of %d tokens came", offload.ErrTier, errScoring, layer, a.scored, a.below)
	}
	h.best = a.merger.Best(h.best[:0])
	h.rank.Accept(l, h.best, picks)
	return nil
}

// errScoring: the drive does not score as it should; what it stores may be good.
var errScoring = errors.New("scores of the drive")

// await waits for the drive.
func (h *driveScoring) await(a *scoreRequest) error {
	if a.done == nil {
		return nil
	}
	awaitScores(h.c.t.f, a.done)
	h.use.BlockBytes += a.blocks
	h.use.ScanBytes += int64(a.timing.ScanBytes)
	h.use.DriveTokens += a.cold
	if f := h.c.t.f; a.err == nil {
		f.accounts.timed.add(a.sent, a.timing, a.blocks/4*f.mostBytes(1))
	}
	return a.err
}

// abandon ends a layer's question, whose outcome nobody wants.
func (l *driveLayer) abandon(f *Shared) {
	if l.open && l.request.done != nil {
		l.request.cancel()
		awaitScores(f, l.request.done)
	}
	l.open = false
}
